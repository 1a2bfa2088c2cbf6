package pulls

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"berth/reconciler"
	"berth/reconciler/command"
	"berth/reconciler/decide"
	"berth/reconciler/plan"
	"berth/schema/authority"
)

const (
	// ackDelete is the command that acknowledges a deletion.
	ackDelete = "ack-delete"
	// maxAcks bounds how many acknowledgements of one pull request are read, and of
	// how many users.
	maxAcks = 50
	// maxTried bounds how many commands are remembered to have been carried out. A
	// forgotten one is tried again.
	maxTried = 10_000
	// readAgain is when acknowledgements are read again that the forge did not list.
	readAgain = 10 * time.Second
)

// commandID identifies a command: the pull request, and the id of the comment.
type commandID struct {
	pull int
	id   int64
}

func idOf(c reconciler.CommandComment) commandID { return commandID{c.Pull, c.ID} }

// Acknowledgements are commands that acknowledge a held deletion: the estate task
// decides the deletion again with each. They are lost with the process, and found
// again in the comments.
type Acknowledgements struct {
	*env

	mu      sync.Mutex
	waiting map[commandID]Acked
	done    map[commandID]bool // a deletion was decided again with them
}

// Acked is a deletion that a command acknowledges.
type Acked struct {
	id     commandID
	Commit string // of main, that brought the deletion
	digest string
}

// foundAck is an acknowledgement in a comment.
type foundAck struct {
	id commandID
	decide.Ack
}

func newAcknowledgements(e *env) *Acknowledgements {
	return &Acknowledgements{env: e, waiting: map[commandID]Acked{}, done: map[commandID]bool{}}
}

// add has a deletion decided again; false if it was already with this command.
func (a *Acknowledgements) add(one Acked) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.done[one.id] {
		return false
	}
	a.waiting[one.id] = one
	return true
}

// AcksWaiting are those that the estate task has not decided with.
func (a *Acknowledgements) AcksWaiting() []Acked {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Collect(maps.Values(a.waiting))
}

// decided records that the deletions were decided again.
func (a *Acknowledgements) decided(ones []Acked) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.done) > maxTried {
		clear(a.done)
	}
	for _, one := range ones {
		delete(a.waiting, one.id)
		a.done[one.id] = true
	}
}

// takeDecided reports, once, whether the deletion was decided again with a command.
func (a *Acknowledgements) takeDecided(id commandID) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	done := a.done[id]
	delete(a.done, id)
	return done
}

// Acks lists the acknowledgements in the comments of a pull request. With an error,
// they are those that could be read.
func (a *Acknowledgements) Acks(ctx context.Context, pull int) ([]decide.Ack, error) {
	found, err := a.find(ctx, pull, nil)
	return acksOf(found), err
}

// AddAcks adds to the last step the acknowledgements of deletions that wait. It
// returns those that the decision then counts; an unreadable one goes on waiting.
func (a *Acknowledgements) AddAcks(ctx context.Context, steps []decide.Step, waiting []Acked) (counted []Acked, err error) {
	last := &steps[len(steps)-1]
	for _, one := range waiting {
		found, err := a.find(ctx, one.id.pull, []string{one.digest}, one.id)
		if ctx.Err() != nil {
			return nil, err
		}
		if err != nil {
			a.Log.Warn("acknowledgement comments unreadable; reading them again", "pull", one.id.pull, "error", err)
			a.Queue.AddAfter(reconciler.Item{Task: reconciler.TaskEstate}, readAgain)
		} else {
			counted = append(counted, one)
		}
		for _, f := range found {
			counted = append(counted, Acked{f.id, one.Commit, f.Digest})
		}
		last.Said = append(last.Said, acksOf(found)...)
	}
	return counted, nil
}

// find lists the acknowledgements in the comments of a pull request by users who
// have write access to the repository now; digests limits them, nil: any. With an
// error, it returns those that could be read. The commands of first are read first,
// as their number is bounded.
func (a *Acknowledgements) find(ctx context.Context, pull int, digests []string, first ...commandID) (out []foundAck, err error) {
	all, err := a.Forge.CommandsOf(ctx, pull)
	if err != nil {
		return nil, err
	}
	all = slices.Clone(all)
	slices.SortStableFunc(all, func(x, y reconciler.CommandComment) int {
		rank := func(c reconciler.CommandComment) int {
			if slices.Contains(first, idOf(c)) {
				return 0
			}
			return 1
		}
		return cmp.Compare(rank(x), rank(y))
	})
	type answer struct {
		may reconciler.Permission
		err error
	}
	users := map[string]answer{}
	for _, c := range all {
		cmd, wrong := command.Parse(c.Line, []command.Verb{ackDeleteVerb()})
		if c.Edited || wrong != nil || cmd.Verb != ackDelete || digests != nil && !slices.Contains(digests, cmd.Args[0]) {
			continue
		}
		ack := decide.Ack{By: authority.Actor{Login: c.Author, Proof: authority.ProofPullRequest}, Digest: cmd.Args[0]}
		if slices.ContainsFunc(out, func(o foundAck) bool { return strings.EqualFold(o.By.Login, c.Author) && o.Digest == ack.Digest }) {
			continue
		}
		by := strings.ToLower(c.Author)
		user, known := users[by]
		if !known {
			if len(users) >= maxAcks {
				continue
			}
			user.may, user.err = a.Forge.Permission(ctx, c.Author)
			users[by] = user
			err = cmp.Or(err, user.err)
			if later := (*reconciler.RetryAfterError)(nil); user.err != nil && ctx.Err() != nil || errors.As(user.err, &later) {
				return out, user.err
			}
		}
		if user.err == nil && user.may >= reconciler.CanWrite && len(out) < maxAcks {
			out = append(out, foundAck{idOf(c), ack})
		}
	}
	return out, err
}

// acksOf are acknowledgements as a decision takes them.
func acksOf(found []foundAck) []decide.Ack {
	var out []decide.Ack
	for _, f := range found {
		out = append(out, f.Ack)
	}
	return out
}

// digestsOf are the digests that held deletions wait for.
func digestsOf(held []plan.Held) []string {
	out := []string{}
	for _, h := range held {
		if d := decide.AckOf(h); d != "" && !slices.Contains(out, d) {
			out = append(out, d)
		}
	}
	return out
}
