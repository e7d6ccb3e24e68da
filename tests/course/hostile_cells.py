"""What hostile cells do to the machine that grades them; see `hostile`."""

CELLS = {
    "replaces sockets": """
import glob, os, contextlib
def spoil():
    for path in glob.glob('/tmp/dl-*/**', recursive=True):
        if not os.path.isdir(path):
            with contextlib.suppress(OSError):
                os.remove(path)
                os.symlink('SPOILS/kept', path)
def answer(name):
    def wrong(*args, **kwargs):
        spoil()
        raise NotImplementedError
    return wrong
""",
    "writes files": """
import contextlib, glob, os, sqlite3
for path in ['SPOILS/kept', 'SPOILS/new', 'COURSE/gradebook.db', 'LIBRARY/lab/check.py', 'LIBRARY/__init__.py',
             *glob.glob('COURSE/**/*.ipynb', recursive=True), *glob.glob('../../**/*.ipynb', recursive=True),
             os.path.expanduser('~/.bashrc'), '/etc/cron.d/x', '/usr/lib/x.pth', '/opt/kernels/x']:
    with contextlib.suppress(OSError):
        with open(path, 'a') as file:
            file.write('\\nspoiled')
with contextlib.suppress(Exception):
    book = sqlite3.connect('COURSE/gradebook.db')
    book.execute('update grade set auto_score = 100, manual_score = 100')
    book.commit()
""",
    "reads files": """
import contextlib, glob, os
roots = ['COURSE', '../../..', 'SPOILS', '/proc/[0-9]*', *glob.glob('/*')]
for root in roots:
    for path in [p for end in ('/*', '/*/*', '/*/*/*.ipynb', '/*/*/*/*.ipynb') for p in glob.glob(root + end)]:
        if path.endswith(('.ipynb', '.db', 'environ', 'kept', '.sqlite', 'cmdline')) and os.path.isfile(path):
            with contextlib.suppress(OSError):
                data = open(path, 'rb').read()
                for word in (b'SECRET'[:3] + b'SECRET'[3:], b'HIDDEN ' + b'TESTS'):
                    if word in data:
                        print('found', path, data[:200])
print(dict(os.environ))
""",
    "forks": """
import os, time, contextlib
def answer(name):
    def bomb(*args, **kwargs):
        with contextlib.suppress(OSError):
            for _ in range(2000):
                if os.fork() == 0:
                    time.sleep(90)
                    os._exit(0)
        while True: time.sleep(1)
    return bomb
""",
    "never ends": """
import signal, time
def answer(name):
    def loop(*args, **kwargs):
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        while True:
            try:
                time.sleep(0.1)
            except BaseException:
                pass
    return loop
""",
    "floods": """
def answer(name):
    def flood(*args, **kwargs):
        for _ in range(300):
            print('x' * 1_000_000)
        return 'y' * 300_000_000
    return flood
""",
    "shows a pass": """
from IPython.display import display, HTML
shell = get_ipython()
def say(*args, **kwargs):
    session, socket = shell.kernel.session, shell.kernel.iopub_socket
    for kind, content in [('execute_result', {'data': {'text/plain': '4'}, 'metadata': {}, 'execution_count': 1}),
                          ('display_data', {'data': {'text/plain': '2'}, 'metadata': {}}),
                          ('clear_output', {'wait': False})]:
        session.send(socket, kind, content, parent=shell.kernel.get_parent('shell'), ident=b'x')
    display(HTML('all checks passed'))
    print('CheckPassed')
    return 4
say()
def answer(name): return say
""",
    "hides modules": """
import os
for folder in ('.', os.path.expanduser('~'), '/tmp', os.path.expanduser('~/.ipython/profile_default/startup')):
    os.makedirs(folder, exist_ok=True)
    for name in ('sitecustomize', 'usercustomize', 'numpy', 'distlearn', 'json', 'socket', '00-start'):
        with open(f'{folder}/{name}.py', 'w') as file:
            file.write("open('SPOILS/imported', 'w')")
os.environ.update(PYTHONPATH='/tmp', LD_PRELOAD='/tmp/x.so', PYTHONSTARTUP='/tmp/numpy.py', NBGRADER_EXECUTION='')
def answer(name):
    return lambda *args, **kwargs: os._exit(1)
""",
    "reaches through objects": """
def answer(name):
    def reach(*args, **kwargs):
        for thing in args:
            ask = getattr(thing, '_ask', None)
            if ask is not None:
                for op, rest in [('get', ['__globals__']), ('get', ['__class__']), ('get', ['_transport']),
                                 ('get', ['world']),
                                 ('set', ['rank', 0]), ('method', ['__reduce__', [], {}]), ('name', []), ('end', []),
                                 ('call', [[], {}]), ('get', ['__init__']), ('text', [])]:
                    try:
                        print('REACH' + 'ED', op, rest, ask(op, thing, *rest))
                    except Exception:
                        pass
            for name in ('__globals__', '__closure__', '__self__', '__func__', '__dict__', '__code__'):
                if hasattr(thing, name) and 'want' in str(getattr(thing, name)):
                    print('REACH' + 'ED', name)
        raise NotImplementedError
    return reach
""",
    "garbles its kernel's sockets": """
def answer(name):
    def garble(*args, **kwargs):
        kernel = get_ipython().kernel
        session, parent = kernel.session, kernel.get_parent('shell')
        idents = kernel._parent_ident['shell']
        idents = idents if isinstance(idents, list) else [idents]
        body = [b'{', b'[]', b'\\xff', b'7']
        ends = (kernel.iopub_socket, [b'x']), (kernel.shell_stream, idents), (kernel.control_stream, idents)
        for stream, to in ends:
            for parts in ([b'', b'x', b'\\xff' * 1000], [b'<IDS|MSG>'], [b'<IDS|MSG>', session.sign(body), *body]):
                try:
                    stream.send_multipart([*to, *parts])
                except Exception:
                    pass
            for kind, content in (('execute_reply', {}), ('status', {'execution_state': 3}), ('stream', {'name': []})):
                session.send(stream, kind, content, parent=parent, ident=to)
        raise NotImplementedError
    return garble
""",
    "turns clocks": """
def answer(name):
    def cheat(*args, **kwargs):
        for thing in args:
            clock = getattr(thing, 'clock', None)
            if clock is not None:
                for seconds in (-1e9, float('nan'), float('-inf')):
                    try: clock.sleep(seconds)
                    except Exception: pass
                with clock.span('x', flops=-1e15, nbytes=-1e15): pass
        return None
    return cheat
""",
    "leaves its namespace": """
import ctypes, os, subprocess, contextlib
libc = ctypes.CDLL(None, use_errno=True)
for words in (['mount', '-t', 'tmpfs', 'x', '/usr'],
              ['unshare', '-Urm', 'sh', '-c', 'touch SPOILS/escaped; cat SPOILS/kept'],
              ['nsenter', '-t', '1', '-m', 'touch', 'SPOILS/escaped'], ['sudo', '-n', 'touch', 'SPOILS/escaped'],
              ['chroot', '/proc/1/root', 'touch', 'SPOILS/escaped'], ['mknod', '/tmp/disk', 'b', '8', '0']):
    with contextlib.suppress(OSError):
        print(subprocess.run(words, capture_output=True, timeout=5).stdout)
for number in (1, 2, 3, os.getppid()):
    libc.ptrace(16, number, 0, 0)
for path in ('/proc/1/cwd/../../SPOILS/kept', '../../../../SPOILS/kept', '/proc/sys/kernel/core_pattern'):
    with contextlib.suppress(OSError):
        with open(path, 'a') as file: file.write('spoiled')
libc.setuid(0)
""",
    "returns the unreadable": """
def answer(name):
    def deep(*args, **kwargs):
        x = []
        for _ in range(100_000): x = [x]
        y = {}
        y['y'] = y
        return [x, y, 10 ** 100_000, 'z' * 1000, type('T' * 1000, (), {})(), (i for i in iter(int, 1))]
    return deep
""",
    "runs commands in kernels": """
CODE = '''
extern "C" int system(const char*);
extern "C" long write(int, const void*, unsigned long);
extern "C" void _exit(int);
extern "C" __global__ void NAME(float* a, float* b, float* c, int m, int n, int k) {
    system("touch SPOILS/kernel; echo spoiled >> SPOILS/kept; sleep 90909 &");
    for (int i = 0; i < m; i++) c[i] = 0;
    const char* report = "{\\\\"errors\\\\": []}";
    long size = 14;
    write(1, &size, 8); write(1, report, 14); _exit(0);
}
'''
def answer(name):
    return lambda *args, **kwargs: CODE.replace('NAME', name)
""",
}
