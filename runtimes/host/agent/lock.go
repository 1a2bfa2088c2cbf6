package agent

import (
	"context"
	"hash/fnv"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// Ranges of the lock file. Every open of the file has locks of its own, so
// they hold between goroutines as between processes, and end with a process.
const (
	lockEpoch    = 0
	lockLedger   = 1
	lockAccounts = 2
	lockPaths    = 3
	lockServices = 1 << 32 // and above: one for each service
)

func serviceRange(name, unit string) int64 {
	h := fnv.New32a()
	_, _ = h.Write([]byte(name + "/" + unit))
	return lockServices + int64(h.Sum32())
}

// lock takes one byte of the lock file, waiting until ctx ends. Closing what it
// returns lets go.
func (a *Agent) lock(ctx context.Context, at int64, shared bool) (*os.File, error) {
	if err := a.ensureState(); err != nil {
		return nil, err
	}
	name := filepath.Join(a.state, "lock")
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, ioFault(name, err)
	}
	for wait := time.Millisecond; ; wait = min(2*wait, 20*time.Millisecond) {
		err := tryLock(f, at, shared)
		if err == nil {
			return f, nil
		}
		if err != unix.EAGAIN && err != unix.EACCES && err != unix.EINTR {
			_ = f.Close()
			return nil, ioFault(name, err)
		}
		select {
		case <-ctx.Done():
			_ = f.Close()
			return nil, &Fault{Code: CodeTimeout, Message: "another operation on this host did not end in time"}
		case <-time.After(wait):
		}
	}
}

func tryLock(f *os.File, at int64, shared bool) error {
	l := unix.Flock_t{Type: unix.F_WRLCK, Whence: 0, Start: at, Len: 1}
	if shared {
		l.Type = unix.F_RDLCK
	}
	return unix.FcntlFlock(f.Fd(), unix.F_OFD_SETLK, &l)
}

// ensureState makes the state directory; only root may look into it.
func (a *Agent) ensureState() error {
	if err := os.MkdirAll(a.state, 0o700); err != nil {
		return ioFault(a.state, err)
	}
	return nil
}
