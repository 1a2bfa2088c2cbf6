package agent

import (
	"context"
	"hash/fnv"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"berth/runtimes"
)

// Ranges of the lock file. Each open file description has its own locks, so they
// work between goroutines and between processes, and end with a process.
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

// waitLock locks one byte of f. It fails with runtimes.CodeBusy if ctx ends before, and closes f on failure.
func waitLock(ctx context.Context, f *os.File, at int64, shared bool, message string) (*os.File, error) {
	for wait := time.Millisecond; ; wait = min(2*wait, 20*time.Millisecond) {
		err := tryLock(f, at, shared)
		if err == nil {
			return f, nil
		}
		if err != unix.EAGAIN && err != unix.EACCES && err != unix.EINTR {
			_ = f.Close()
			return nil, ioFault(f.Name(), err)
		}
		select {
		case <-ctx.Done():
			_ = f.Close()
			return nil, &Fault{Code: runtimes.CodeBusy, Message: message}
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
