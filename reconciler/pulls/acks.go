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

// said are the acknowledgements of large deletions among what was said on a pull
// request, each by somebody who may write to the repository now; of just the
// digests that are asked for, nil: of any. Together with an error it is what could
// be read: of whom that cannot be asked, nothing was said. first are looked at
// before all others, of which there may be too many.
func (r *Pulls) said(ctx context.Context, number int, asked []string, first ...remarkID) (out []word, err error) {
	all, err := r.o.Forge.CommandsOf(ctx, number)
	if err != nil {
		return nil, err
	}
	if len(first) > 0 {
		is := func(rem reconciler.CommandComment) bool { return slices.Contains(first, remarkID{rem.Pull, rem.ID}) }
		all = append(slices.DeleteFunc(slices.Clone(all), func(rem reconciler.CommandComment) bool { return !is(rem) }), slices.DeleteFunc(slices.Clone(all), is)...)
	}
	permissions := map[string]reconciler.Permission{}
	failed := map[string]error{}
	for _, rem := range all {
		c, wrong := command.Parse(rem.Line)
		if rem.Edited || wrong != nil || c.Verb != command.AckDelete || asked != nil && !slices.Contains(asked, c.Bound) {
			continue
		}
		by := strings.ToLower(rem.Author)
		one := word{remarkID{rem.Pull, rem.ID}, decide.Ack{By: authority.Actor{Login: rem.Author, Proof: authority.ProofPullRequest}, Digest: c.Bound}}
		if slices.ContainsFunc(out, func(o word) bool { return strings.EqualFold(o.By.Login, by) && o.Digest == c.Bound }) {
			continue // once is enough
		}
		if _, known := permissions[by]; !known && failed[by] == nil && len(permissions)+len(failed) >= maxAcks {
			continue
		}
		if failed[by] == nil {
			may, wrong := once(&permissions, by, func() (reconciler.Permission, error) { return r.o.Forge.Permission(ctx, rem.Author) })
			if wrong != nil {
				failed[by] = wrong
				err = cmp.Or(err, wrong)
				if later := (*reconciler.RetryAfterError)(nil); ctx.Err() != nil || errors.As(wrong, &later) {
					return out, wrong
				}
			}
			if wrong == nil && may >= reconciler.CanWrite && len(out) < maxAcks {
				out = append(out, one)
			}
		}
	}
	return out, err
}

// word is an acknowledgement, and the remark that is one.
type word struct {
	remark remarkID
	decide.Ack
}

// remarkID tells remarks apart.
type remarkID struct {
	pull int
	id   int64
}

// acksOf are acknowledgements as a decision takes them.
func acksOf(words []word) []decide.Ack {
	var out []decide.Ack
	for _, w := range words {
		out = append(out, w.Ack)
	}
	return out
}

// digestsOf are the acknowledgements that deletions wait for.
func digestsOf(held []plan.Held) []string {
	out := []string{}
	for _, h := range held {
		if d := decide.AckOf(h); d != "" && !slices.Contains(out, d) {
			out = append(out, d)
		}
	}
	return out
}

// saidBefore has a deletion decided again that is held although somebody had
// acknowledged it: the forge did not tell in time which pull request brought it,
// or what was said on it.
func (r *Pulls) saidBefore(ctx context.Context, prs []reconciler.PullRequest, held []plan.Held) (err error) {
	st := r.current()
	asked := slices.DeleteFunc(digestsOf(held), func(d string) bool {
		return !slices.ContainsFunc(st.Held, func(h plan.Held) bool { return decide.AckOf(h) == d })
	})
	if len(asked) == 0 {
		return nil
	}
	for _, pr := range prs {
		said, wrong := r.said(ctx, pr.Number, asked)
		err = cmp.Or(err, wrong)
		for _, w := range said {
			if r.acks.ask(Acked{pr.Number, pr.MergeCommit, w.Digest, w.remark}) {
				r.o.Enqueue(reconciler.Item{Task: reconciler.TaskEstate})
			}
		}
	}
	return err
}

// maxAcks is how many acknowledgements of one pull request are looked at, and of
// how many people.
const maxAcks = 50

// maxTried bounds how many acknowledgements are remembered to have been tried. To
// forget one has it tried once more.
const maxTried = 10_000

// acks are the deletions that are to be decided once more, as somebody
// acknowledged them after they were. They are taken up again from what was said
// if they are lost.
type acks struct {
	mu      sync.Mutex
	waiting map[remarkID]Acked
	done    map[remarkID]bool // those that were decided with
}

// Acked is such a deletion: the pull request and the commit of main it came
// with, and the remark that acknowledges it.
type Acked struct {
	pull           int
	Commit, digest string
	remark         remarkID
}

// ask has one decided again; it says false if it was already, and nobody was told.
func (a *acks) ask(one Acked) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.waiting == nil {
		a.waiting, a.done = map[remarkID]Acked{}, map[remarkID]bool{}
	}
	if a.done[one.remark] {
		return false
	}
	a.waiting[one.remark] = one
	return true
}

// all are those that wait.
func (a *acks) all() []Acked {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Collect(maps.Values(a.waiting))
}

// decided notes that they were.
func (a *acks) decided(ones []Acked) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.done) > maxTried {
		clear(a.done)
	}
	for _, one := range ones {
		delete(a.waiting, one.remark)
		a.done[one.remark] = true
	}
}

// tried says, once, whether it was decided again with a remark.
func (a *acks) tried(remark remarkID) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	tried := a.done[remark]
	delete(a.done, remark)
	return tried
}

// sayAgainIn is when it is asked again what was said of a deletion, if the forge
// did not tell.
const sayAgainIn = 10 * time.Second

// AddAcks adds to the last step what was said since of deletions that wait. It
// returns what is decided with by that, whoever said it; of which it could not be
// read is left to wait.
func (r *Pulls) AddAcks(ctx context.Context, steps []decide.Step, acked []Acked) (read []Acked, err error) {
	last := &steps[len(steps)-1]
	for _, one := range acked {
		said, err := r.said(ctx, one.pull, []string{one.digest}, one.remark)
		if ctx.Err() != nil {
			return nil, err
		}
		if err != nil {
			r.o.Log.Warn("not all that was said of a deletion can be read; again later", "pull", one.pull, "error", err)
			r.o.EnqueueAfter(reconciler.Item{Task: reconciler.TaskEstate}, sayAgainIn)
		}
		if err == nil {
			read = append(read, one)
		}
		for _, w := range said {
			read = append(read, Acked{one.pull, one.Commit, w.Digest, w.remark})
		}
		last.Said = append(last.Said, acksOf(said)...)
	}
	return read, nil
}

// once asks for what is not remembered; an error is asked for again.
func once[K comparable, V any](memory *map[K]V, key K, ask func() (V, error)) (V, error) {
	if v, ok := (*memory)[key]; ok {
		return v, nil
	}
	v, err := ask()
	if err == nil {
		if *memory == nil {
			*memory = map[K]V{}
		}
		(*memory)[key] = v
	}
	return v, err
}

// Acks are the acknowledgements of deletions in the comments of a pull request.
// With an error, they are those that could be read.
func (r *Pulls) Acks(ctx context.Context, pull int) ([]decide.Ack, error) {
	words, err := r.said(ctx, pull, nil)
	return acksOf(words), err
}

// AcksWaiting are the acknowledgements that the estate task has not decided with.
func (r *Pulls) AcksWaiting() []Acked { return r.acks.all() }

// AcksDecided reports deletions that were decided again with acknowledgements.
func (r *Pulls) AcksDecided(acked []Acked) {
	if len(acked) == 0 {
		return
	}
	r.acks.decided(acked)
	for _, one := range acked {
		r.RollOuts.Released(one.Commit, r.current().Held)
		r.Touched(one.Commit)
	}
	r.o.Enqueue(reconciler.Item{Task: reconciler.TaskCommands})
}
