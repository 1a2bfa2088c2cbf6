package agent

import (
	"context"
	"os"

	"golang.org/x/sys/unix"
)

// WhileHeard returns a context that ends when the far end of w, a pipe or socket, is
// closed. The client may then retry elsewhere, and must not meet an operation that
// still runs for the first request.
func WhileHeard(ctx context.Context, w *os.File) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	go func() {
		defer cancel()
		for ctx.Err() == nil {
			// Without events, poll reports only that the far end is closed. The
			// timeout lets this goroutine end with the context.
			fds := []unix.PollFd{{Fd: int32(w.Fd())}}
			n, err := unix.Poll(fds, 1000)
			if err != nil && err != unix.EINTR || n > 0 && err == nil {
				return
			}
		}
	}()
	return ctx, cancel
}
