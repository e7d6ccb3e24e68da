"""What hostile answers do to pass their checks; see `hostile`."""

ANSWERS = {
    "finds the result in frames": """
def answer(name):
    import sys
    def loot(*args, **kwargs):
        look = getattr(sys, '_get' + 'frame')
        frame, seen = look(), []
        while frame is not None:
            seen += [frame.f_locals, frame.f_globals]
            frame = frame.f_back
        for space in seen:
            for key in ('want', 'wanted', 'right', 'whole', 'expected'):
                if key in space:
                    return space[key]
        import gc
        for found in gc.get_objects():
            if isinstance(found, dict) and 'want' in found:
                return found['want']
        return globals()['want']
    return loot
""",
    "equals everything": """
def answer(name):
    class Yes:
        __name__ = name
        __hash__ = None
        def __init__(self, *args, **kwargs): pass
        def __eq__(self, other): return True
        def __ne__(self, other): return False
        def __getattr__(self, key):
            if key.startswith('_'): raise AttributeError(key)
            return self
        def __call__(self, *args, **kwargs): return self
        def __array__(self, *args, **kwargs): raise ZeroDivisionError
        def __array_ufunc__(self, *args, **kwargs): return True
        def __array_function__(self, *args, **kwargs): return True
        def __bool__(self): return True
        def __float__(self): return float('nan')
        def __len__(self): return 2
        def __getitem__(self, key): return self
        def __reduce__(self): return exec, ("raise SystemExit",)
    return Yes()
""",
    "patches from a thread": """
import threading, time
def work():
    import gc, sys
    while True:
        for name, module in list(sys.modules.items()):
            if name.startswith('distcourse') and hasattr(module, 'Check'):
                module.Check.close = module.Check.equal = module.Check.true = lambda *a, **k: None
        time.sleep(0.01)
threading.Thread(target=work, daemon=True).start()
""",
    "forges answers": """
import json, os, pickle, socket
class Boom:
    def __reduce__(self): return os.system, ('touch SPOILS/forged',)
from distcourse.judge import student
def serve(path, namespace):
    end = socket.socket(socket.AF_UNIX); end.connect(path)
    number = 0
    while True:
        number += 1
        data = pickle.dumps(Boom())
        header = {'k': 'r', 'i': number, 'b': [len(data)], 'n': [], 's': [], 'c': [], 'z': []}
        header['v'] = [True, {'k': [['j', 1], 0]}, {'d': []}, data.hex()][number % 4]
        text = json.dumps(header).encode()
        end.sendall(len(text).to_bytes(8, 'little') + len(data).to_bytes(8, 'little') + text + data)
        if not end.recv(1 << 20): return
student.serve = serve
""",
    "hangs up": """
import socket, time
from distcourse.judge import student
def serve(path, namespace):
    end = socket.socket(socket.AF_UNIX); end.connect(path)
    end.close()
student.serve = serve
""",
    "claims a verdict": """
import json, socket
from distcourse.judge import student
def serve(path, namespace):
    end = socket.socket(socket.AF_UNIX); end.connect(path)
    text = json.dumps({'outputs': [], 'lost': '', 'ready': True}).encode() + b'\\n'
    end.sendall(text * 100)
    sys.stdout.write('{"outputs": [], "lost": ""}')
student.serve = serve
""",
    "zeroes what it gets": """
import numpy as np
def answer(name):
    def zero(*args, **kwargs):
        for thing in [*args, *kwargs.values()]:
            for array in [thing, getattr(thing, 'base', None), *(thing if isinstance(thing, (list, tuple)) else [])]:
                if isinstance(array, np.ndarray) and array.flags.writeable:
                    array[...] = 0
            for p in getattr(thing, 'params', []):
                p.data[...] = 0
                p.grad[...] = 0
        first = next((a for a in args if isinstance(a, np.ndarray)), np.zeros(1))
        return np.zeros_like(first), np.zeros_like(first)
    return zero
""",
    "raises oddly": """
def answer(name):
    from distcourse import CheckFailed
    class Own(BaseException): pass
    todo = [SystemExit(0), KeyboardInterrupt(), GeneratorExit(), StopIteration(), Own('x'),
            CheckFailed.__new__(CheckFailed),
            AssertionError(), RecursionError(), MemoryError(), Exception('\\x1b[0m<script>alert(1)</script>')]
    def fail(*args, **kwargs):
        error = todo.pop() if len(todo) > 1 else todo[0]
        raise error
    return fail
""",
    "ends its process": """
def answer(name):
    import os
    return lambda *args, **kwargs: os._exit(0)
""",
}
