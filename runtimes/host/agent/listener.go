package agent

import (
	"context"
	"os"

	"golang.org/x/sys/unix"
)

// WhileHeard is a context that ends when nobody reads what is written to w any
// more, a pipe or socket: who asked has gone or has given up, may ask again
// elsewhere, and must not meet what is still under way for the first request.
func WhileHeard(ctx context.Context, w *os.File) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	go func() {
		defer cancel()
		for ctx.Err() == nil {
			// Without events it reports only that the far end is closed. The
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
