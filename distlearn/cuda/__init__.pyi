from distlearn.cuda.cards import Card as Card
from distlearn.cuda.nvrtc import CompileCheck as CompileCheck
from distlearn.cuda.emulator.source import CompileError as CompileError
from distlearn.cuda.emulator.source import CompilerNotFound as CompilerNotFound
from distlearn.cuda.report import Finding as Finding
from distlearn.cuda.emulator.source import KernelError as KernelError
from distlearn.cuda.kernel import RawKernel as RawKernel
from distlearn.cuda.report import Report as Report
from distlearn.cuda.report import Site as Site
from distlearn.cuda.emulator.source import UnsupportedFeature as UnsupportedFeature
from distlearn.cuda.nvrtc import compile_check as compile_check
from distlearn.cuda.nvrtc import has_nvrtc as has_nvrtc
CARDS: dict[str, Card]
