"""A web server on 127.0.0.1 that misbehaves as it is told to."""

import contextlib
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class BadServer:
    """Serves `files` (by last part of the path); `plan` maps a folder to the behaviours of its next requests.

    A folder whose plan is used up behaves well. `requests` lists (folder, file, first byte asked for).
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

    def starts(self, folder):
        return [start for where, _, start in self.requests if where == folder]

    def _handler(server):
        class Handler(BaseHTTPRequestHandler):
            def do_GET(self):
                _, folder, file = self.path.split("/")
                asked = self.headers.get("Range")
                start = int(asked.removeprefix("bytes=").removesuffix("-")) if asked else 0
                server.requests.append((folder, file, start))
                steps = server.plan.get(folder)
                name, *arguments = steps.pop(0) if steps else ("good",)
                with contextlib.suppress(ConnectionError):
                    getattr(self, name)(server.files[file], start, *arguments)

            def good(self, data, start, *, keep=None, promise=True):
                if start >= len(data):
                    self.send_response(416)
                    self.send_header("Content-Range", f"bytes */{len(data)}")
                    return self.end_headers()
                self.send_response(206 if start else 200)
                if start:
                    self.send_header("Content-Range", f"bytes {start}-{len(data) - 1}/{len(data)}")
                body = data[start:]
                if promise:
                    self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body if keep is None else body[:keep])

            def truncated(self, data, start, keep):
                """Promises all, sends `keep` bytes, closes."""
                self.good(data, start, keep=keep)

            def silently_truncated(self, data, start, keep):
                """Promises nothing, sends `keep` bytes, closes."""
                self.good(data, start, keep=keep, promise=False)

            def no_range(self, data, start, keep=None):
                self.good(data, 0, keep=keep)

            def other_range(self, data, start):
                """Answers with another part than the one asked for."""
                self.send_response(206)
                self.send_header("Content-Range", f"bytes {start + 3}-{len(data) - 1}/{len(data)}")
                self.send_header("Content-Length", str(len(data) - start - 3))
                self.end_headers()
                self.wfile.write(data[start + 3 :])

            def corrupt(self, data, start):
                self.good(data[: len(data) // 2] + b"?" + data[len(data) // 2 + 1 :], start)

            def page(self, data, start):
                """Some other document, as a captive portal would send."""
                self.good(b"<html>Please log in</html>", 0)

            def mislabelled(self, data, start):
                """Says that the archive's own gzip is an encoding of the transfer."""
                self.send_response(200)
                self.send_header("Content-Encoding", "gzip")
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def status(self, data, start, code):
                self.send_response(code)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def hang_up(self, data, start):
                self.close_connection = True

            def slow(self, data, start, seconds):
                time.sleep(seconds)
                self.good(data, start)

            def stall(self, data, start, keep, seconds):
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
