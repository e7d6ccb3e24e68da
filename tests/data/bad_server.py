"""A web server on 127.0.0.1 that misbehaves as it is told to."""

import contextlib
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class BadServer:
    """Serves `files` (by last part of the path); `plan` maps a folder to the behaviours of its next requests.

    A folder whose plan is used up behaves well. `requests` lists (folder, file).
    """

    def __init__(self, files):
        self.files, self.plan, self.requests = files, {}, []
        self._http = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._http.daemon_threads = True
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.01,))

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *exception):
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()

    def mirror(self, folder):
        return f"http://127.0.0.1:{self._http.server_address[1]}/{folder}/"

    def _handler(server):
        class Handler(BaseHTTPRequestHandler):
            def do_GET(self):
                _, folder, file = self.path.split("/")
                server.requests.append((folder, file))
                steps = server.plan.get(folder)
                name, *arguments = steps.pop(0) if steps else ("good",)
                with contextlib.suppress(ConnectionError):
                    getattr(self, name)(server.files[file], *arguments)

            def good(self, data, *, keep=None, promise=True):
                self.send_response(200)
                if promise:
                    self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data[:keep])

            def truncated(self, data, keep):
                """Promises all, sends `keep` bytes, closes."""
                self.good(data, keep=keep)

            def silently_truncated(self, data, keep):
                """Promises nothing, sends `keep` bytes, closes."""
                self.good(data, keep=keep, promise=False)

            def corrupt(self, data):
                self.good(data[: len(data) // 2] + b"?" + data[len(data) // 2 + 1 :])

            def page(self, data):
                """Some other document, as a captive portal would send."""
                self.good(b"<html>Please log in</html>")

            def status(self, data, code):
                self.send_response(code)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def hang_up(self, data):
                self.close_connection = True

            def slow(self, data, seconds):
                time.sleep(seconds)
                self.good(data)

            def stall(self, data, keep, seconds):
                """Stops in the middle without closing."""
                self.send_response(200)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data[:keep])
                self.wfile.flush()
                time.sleep(seconds)

            def log_message(self, *arguments):
                pass

        return Handler
