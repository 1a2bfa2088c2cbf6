package pulls

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"berth/reconciler"
	"berth/reconciler/command"
	"berth/reconciler/decide"
	"berth/schema"
	"berth/schema/authority"
)

const (
	// maxAcks bounds how many acknowledgements of one pull request are read, and of
	// how many users.
	maxAcks = 50
	// readAgain is when acknowledgements are read again that the forge did not list.
	readAgain = 10 * time.Second
)

// ackDelete is how acknowledgements are written.
func ackDelete() command.Verb {
	return command.Verb{Name: "ack-delete", Args: []command.Argument{{Name: "DIGEST", Parse: command.Digest}},
		Help: "acknowledges exactly this blocked deletion, before or after the merge"}
}

// Acknowledgements are commands that acknowledge a held deletion: the estate task
// decides the deletion again with each.
type Acknowledgements struct {
	*env
	pending pending[Acked, bool]
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

// AcksWaiting are those that the estate task has not decided with.
func (a *Acknowledgements) AcksWaiting() []Acked { return a.pending.all() }

// Acks lists the acknowledgements in the comments of a pull request. With an error,
// they are those that could be read.
func (a *Acknowledgements) Acks(ctx context.Context, pull int) ([]decide.Ack, error) {
	found, err := a.find(ctx, pull, nil, commandID{})
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
		last.CommentAcks = append(last.CommentAcks, acksOf(found)...)
	}
	return counted, nil
}

// find lists the acknowledgements in the comments of a pull request by users who
// have write access to the repository now; digests limits them, nil: any. With an
// error, it returns those that could be read. The command first is read first, as
// their number is bounded.
func (a *Acknowledgements) find(ctx context.Context, pull int, digests []string, first commandID) (out []foundAck, err error) {
	all, err := a.Forge.CommandsOf(ctx, pull)
	if err != nil {
		return nil, err
	}
	if i := slices.IndexFunc(all, func(c reconciler.CommandComment) bool { return idOf(c) == first }); i > 0 {
		all = slices.Concat(all[i:i+1], all[:i], all[i+1:])
	}
	users, verb := newUsers(a.Forge, maxAcks), ackDelete()
	for _, c := range all {
		cmd, wrong := command.Parse(c.Line, []command.Verb{verb})
		if c.Edited || wrong != nil || cmd.Verb != verb.Name || digests != nil && !slices.Contains(digests, cmd.Args[0]) {
			continue
		}
		ack := decide.Ack{By: authority.Actor{Login: c.Author, Proof: authority.ProofPullRequest}, Digest: cmd.Args[0]}
		if slices.ContainsFunc(out, func(o foundAck) bool { return strings.EqualFold(o.By.Login, c.Author) && o.Digest == ack.Digest }) {
			continue
		}
		may, unknown := users.permission(ctx, c.Author)
		switch {
		case isFinal(ctx, unknown):
			return out, unknown
		case errors.Is(unknown, errManyUsers):
		case unknown != nil:
			err = cmp.Or(err, unknown)
		case may >= reconciler.CanWrite && len(out) < maxAcks:
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
func digestsOf(held []schema.Held) []string {
	out := []string{}
	for _, h := range held {
		if d := h.Ack; d != "" && !slices.Contains(out, d) {
			out = append(out, d)
		}
	}
	return out
}
