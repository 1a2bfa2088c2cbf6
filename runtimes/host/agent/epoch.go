package agent

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// seen is the highest epoch this host has seen.
func (a *Agent) seen() (uint64, error) {
	name := filepath.Join(a.state, "epoch")
	b, err := os.ReadFile(name)
	if os.IsNotExist(err) {
		return 0, nil
	}
	if err != nil {
		return 0, ioFault(name, err)
	}
	n, err := strconv.ParseUint(strings.TrimSpace(string(b)), 10, 64)
	if err != nil {
		return 0, &Fault{Code: CodeIO, Message: name + " holds no number; without it a deposed leader cannot be told: restore it"}
	}
	return n, nil
}

// enter lets effects of an epoch through, until leave: a later epoch comes in
// only when those of earlier ones have left.
func (a *Agent) enter(ctx context.Context, epoch uint64) (leave func(), err error) {
	if epoch == 0 {
		return nil, refuse("an effect needs the epoch of a leader")
	}
	f, err := a.lock(ctx, lockEpoch, true)
	if err != nil {
		return nil, err
	}
	seen, err := a.seen()
	if err == nil && epoch > seen {
		_ = f.Close()
		if f, err = a.lock(ctx, lockEpoch, false); err != nil {
			return nil, err
		}
		// Another may have been faster.
		if seen, err = a.seen(); err == nil && epoch > seen {
			err = a.raise(epoch)
			seen = epoch
		}
		if err == nil {
			err = tryLock(f, lockEpoch, true) // a lock of one's own is lowered in one step
		}
	}
	if err == nil && epoch < seen {
		err = &Fault{Code: CodeStaleEpoch, Message: fmt.Sprintf("epoch %d, and this host has seen %d", epoch, seen)}
	}
	if err != nil {
		_ = f.Close()
		return nil, err
	}
	return func() { _ = f.Close() }, nil
}

func (a *Agent) raise(epoch uint64) error {
	p, err := open(filepath.Join(a.state, "epoch"))
	if err != nil {
		return err
	}
	defer p.close()
	return p.replace([]byte(strconv.FormatUint(epoch, 10)+"\n"), 0o600, os.Geteuid(), os.Getegid())
}
