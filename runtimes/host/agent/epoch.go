package agent

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"berth/runtimes"
)

// leadership is an epoch with the identity of its leader, or "" if no leader is known
// yet.
type leadership struct {
	epoch  uint64
	leader string
}

// yieldsTo reports whether the leader of a stamp replaces this leadership: with a
// later epoch, or as the first known leader of this one.
func (l leadership) yieldsTo(s runtimes.Stamp) bool {
	return s.Epoch > l.epoch || s.Epoch == l.epoch && l.leader == "" && s.Leader != ""
}

// admit returns an error for a stamp that does not belong to this leadership.
func (l leadership) admit(s runtimes.Stamp) error {
	switch {
	case s.Epoch < l.epoch:
		return &Fault{Code: CodeStaleEpoch, Message: fmt.Sprintf("epoch %d, and this host has seen %d", s.Epoch, l.epoch)}
	case s.Leader != l.leader:
		return &Fault{Code: CodeStaleEpoch, Message: fmt.Sprintf("epoch %d belongs to another leader on this host", s.Epoch)}
	}
	return nil
}

// The files of the leadership in the state directory. Helpers of earlier releases,
// which know no leader, use the file of the epoch too. The leader's file repeats the
// epoch and counts for that one only.
const (
	epochFile  = "epoch"  // "EPOCH"
	leaderFile = "leader" // "EPOCH LEADER"
)

// latestLeader returns the latest leadership that this host knows.
func (a *Agent) latestLeader() (leadership, error) {
	var seen leadership
	fields, err := a.stateWords(epochFile, 1)
	if err != nil {
		return leadership{}, err
	}
	if fields != nil {
		if seen.epoch, err = a.stateNumber(epochFile, fields[0]); err != nil {
			return leadership{}, err
		}
	}
	if fields, err = a.stateWords(leaderFile, 2); err != nil || fields == nil {
		return seen, err
	}
	epoch, err := a.stateNumber(leaderFile, fields[0])
	if err == nil && epoch >= seen.epoch { // later after a crash between the two writes
		seen = leadership{epoch, fields[1]}
	}
	return seen, err
}

// stateWords reads a file of the state directory with count words. It returns nil if
// the file does not exist.
func (a *Agent) stateWords(file string, count int) ([]string, error) {
	name := filepath.Join(a.state, file)
	b, err := os.ReadFile(name)
	if os.IsNotExist(err) {
		return nil, nil
	}
	if err != nil {
		return nil, ioFault(name, err)
	}
	words := strings.Fields(string(b))
	if len(words) != count {
		return nil, unreadableState(name)
	}
	return words, nil
}

func (a *Agent) stateNumber(file, word string) (uint64, error) {
	n, err := strconv.ParseUint(word, 10, 64)
	if err != nil {
		return 0, unreadableState(filepath.Join(a.state, file))
	}
	return n, nil
}

func unreadableState(name string) error {
	return &Fault{Code: CodeIO, Message: name + " is unreadable; restore it, as it is needed to refuse a deposed leader"}
}

// enter admits the effects of a leader until leave is called. A later leader enters
// only when the effects of earlier ones have ended.
func (a *Agent) enter(ctx context.Context, stamp runtimes.Stamp) (leave func(), err error) {
	if stamp.Epoch == 0 {
		return nil, refuse("an effect needs the epoch of a leader")
	}
	f, err := a.lock(ctx, lockEpoch, true)
	if err != nil {
		return nil, err
	}
	seen, err := a.latestLeader()
	if err == nil && seen.yieldsTo(stamp) {
		_ = f.Close()
		if f, err = a.lock(ctx, lockEpoch, false); err != nil {
			return nil, err
		}
		// Another request may have been faster.
		if seen, err = a.latestLeader(); err == nil && seen.yieldsTo(stamp) {
			seen = leadership{stamp.Epoch, stamp.Leader}
			err = a.raise(seen)
		}
		if err == nil {
			err = tryLock(f, lockEpoch, true) // downgrading the lock is atomic
		}
	}
	if err == nil {
		err = seen.admit(stamp)
	}
	if err != nil {
		_ = f.Close()
		return nil, err
	}
	return func() { _ = f.Close() }, nil
}

// raise records a leadership. The leader is written before the epoch: after a
// crash between the two, the epoch already belongs to it.
func (a *Agent) raise(to leadership) error {
	epoch := strconv.FormatUint(to.epoch, 10)
	if to.leader != "" {
		if err := a.writeState(leaderFile, epoch+" "+to.leader+"\n"); err != nil {
			return err
		}
	}
	return a.writeState(epochFile, epoch+"\n")
}
