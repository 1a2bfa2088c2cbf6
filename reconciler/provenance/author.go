package provenance

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"

	"berth/reconciler"
	"berth/reconciler/decide"
	"berth/schema/authority"
)

// breakGlassTrailer asks for break-glass access and gives the reason.
const breakGlassTrailer = "Break-Glass"

// Options configure Authors.
type Options struct {
	Repo   reconciler.Repo
	Forge  reconciler.Forge // nil: no forge
	Branch string           // the branch that pull requests are merged to
	// CheckAuthority is false where every user with push access may change everything.
	// Then the forge is not asked for authors.
	CheckAuthority bool
	Lag            time.Duration // how long a forge may take to name the pull request of a new commit
	Accept         string        // commit of main that the operator accepts unchecked; "": none
	// Acks lists the acknowledgements of deletions in the comments of a pull request.
	// With an error, it returns those that it could read.
	Acks func(ctx context.Context, pull int) ([]decide.Ack, error)
	Log  *slog.Logger
	Now  func() time.Time
}

// Authors finds who made the commits of main. Use it in one goroutine.
type Authors struct {
	o Options
	// firstSeen is when each undecided commit was seen first. The lag of the forge
	// counts from then, so that many commits do not wait one after another.
	firstSeen map[string]time.Time
}

// New makes an Authors.
func New(o Options) *Authors { return &Authors{o: o, firstSeen: map[string]time.Time{}} }

// Steps lists the commits of main after one that was decided, up to another, each
// with its author, oldest first; from is "" if nothing is in force yet. It ends
// before a commit whose pull request the forge may not know yet. ackAwaited says
// that a held deletion waits for an acknowledgement, which any commit may bring.
func (a *Authors) Steps(ctx context.Context, from, to string, ackAwaited bool) ([]decide.Step, error) {
	if from == to && from != "" { // decided once more, as a part of it was unreadable
		var err error
		if from, err = a.onlyParent(ctx, to); err != nil {
			return nil, err
		}
	}
	if from == "" {
		tree, err := a.o.Repo.Snapshot(ctx, to)
		return []decide.Step{{Commit: to, Tree: tree}}, err
	}
	commits, joins, err := chain(ctx, a.o.Repo, from, to)
	if err != nil {
		return nil, err
	}
	a.noteFirstSeen(commits)
	var out []decide.Step
	readable := from // the last commit whose tree could be read
	if len(commits) == 0 || len(commits) == MaxSteps {
		s, err := a.oldest(ctx, from, to, commits)
		if err != nil {
			return nil, err
		}
		out, readable = append(out, s), s.Commit
	}
	more, err := a.oneByOne(ctx, commits, joins, readable, ackAwaited || slices.ContainsFunc(out, removesMany))
	return append(out, more...), err
}

// oneByOne are the steps of commits that come after a readable one.
func (a *Authors) oneByOne(
	ctx context.Context, commits []reconciler.Commit, joins map[string]string, readable string, ackAwaited bool,
) (out []decide.Step, err error) {
	h := NewHistory(a.o.Repo, a.o.Forge, a.o.Branch, commits)
	for i, c := range commits {
		parent, joined := joins[c.ID]
		if !joined && len(c.Parents) > 0 {
			parent = c.Parents[0]
		}
		gap := i > 0 && parent != readable
		if gap {
			parent = readable // an unreadable commit is decided as a part of the next one, without an author
		}
		s, err := a.step(ctx, parent, c.ID)
		if errors.Is(err, reconciler.ErrUnreadable) && i < len(commits)-1 {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("commit %d of %d from %s: %w", i+1, len(commits), reconciler.Short(commits[0].ID), err)
		}
		readable = c.ID
		known := true
		if gap || joined { // neither a forge nor a signature vouches for all of such a change
			s.Operator = joined && a.o.Accept == commits[len(commits)-1].ID
		} else if known, err = a.complete(ctx, h, i, &s, ackAwaited || slices.ContainsFunc(out, removesMany)); err != nil {
			return nil, err
		}
		if !known {
			break
		}
		out = append(out, s)
	}
	return out, nil
}

// complete fills in the author of commit i of a history and, if it deletes much,
// the acknowledgements. known is false while the forge may not know the author yet.
func (a *Authors) complete(ctx context.Context, h *History, i int, s *decide.Step, ackAwaited bool) (known bool, err error) {
	if known, err = a.attribute(ctx, h, i, s, ackAwaited); err != nil {
		return false, fmt.Errorf("find the author of %s: %w", reconciler.Short(s.Commit), err)
	}
	switch {
	case !known:
		a.o.Log.Info("waiting for the forge to name the pull request of a commit", "commit", reconciler.Short(s.Commit), "at_most", a.o.Lag)
	case removesMany(*s):
		err = a.addAcks(ctx, h, i, s)
	}
	return known, err
}

// onlyParent is the parent of a commit; "" if it has none or several.
func (a *Authors) onlyParent(ctx context.Context, commit string) (string, error) {
	commits, err := a.o.Repo.Log(ctx, "", commit, 1)
	if err != nil || len(commits) != 1 || len(commits[0].Parents) != 1 {
		return "", err
	}
	return commits[0].Parents[0], nil
}

// oldest is the change from a commit to the first of the commits that are decided
// one by one.
func (a *Authors) oldest(ctx context.Context, from, to string, commits []reconciler.Commit) (decide.Step, error) {
	end := to
	if len(commits) > 0 && len(commits[0].Parents) > 0 {
		end = commits[0].Parents[0]
	}
	s, err := a.step(ctx, from, end)
	s.Operator = a.o.CheckAuthority && a.o.Accept == to
	return s, err
}

func (a *Authors) step(ctx context.Context, parent, commit string) (s decide.Step, err error) {
	s.Commit = commit
	if s.Touched, err = a.o.Repo.Diff(ctx, parent, commit); err != nil {
		return s, err
	}
	s.Tree, err = a.o.Repo.Snapshot(ctx, commit)
	return s, err
}

func (a *Authors) noteFirstSeen(commits []reconciler.Commit) {
	now := a.o.Now()
	maps.DeleteFunc(a.firstSeen, func(_ string, since time.Time) bool { return now.Sub(since) > time.Hour+a.o.Lag })
	for _, c := range commits {
		if a.firstSeen[c.ID].IsZero() {
			a.firstSeen[c.ID] = now
		}
	}
}

// attribute fills in who made commit i of a history. known is false while the forge
// may not know its pull request yet. ackAwaited is true if the commit may be there
// to acknowledge a deletion; otherwise a commit outside the estate needs no author.
func (a *Authors) attribute(ctx context.Context, h *History, i int, s *decide.Step, ackAwaited bool) (known bool, err error) {
	ev, err := a.o.Repo.Evidence(ctx, s.Commit)
	if err != nil {
		return false, err
	}
	s.By.BreakGlass, s.Acks = Requests(ev)
	s.Payload, s.Signature = ev.Payload, ev.Signature
	outside := len(s.Touched) > 0 && len(s.Acks) == 0 &&
		!slices.ContainsFunc(s.Touched, func(c reconciler.PathChange) bool { return InEstate(c.Path) })
	if !a.o.CheckAuthority || a.o.Forge == nil || ev.Tenant != "" || outside && !ackAwaited {
		return true, nil // no permission is checked, or no forge knows the commit
	}
	pr, ok, err := h.MergedBy(ctx, i)
	if err != nil {
		return false, err
	}
	if ok {
		approvers, err := h.approversOf(ctx, pr)
		if err != nil {
			return false, err
		}
		s.By.Login, s.By.Approvers, s.By.Proof, s.PullRequest = pr.Author, approvers, authority.ProofPullRequest, pr.Number
		// Whoever merges writes the message of the merge; the author wrote the head's.
		if s.By.BreakGlass, s.Acks, err = a.requestsOfHead(ctx, pr); err != nil {
			return false, err
		}
	}
	if ok || pr.Number != 0 || outside { // the pull request is known, even if it proves nothing; or nobody needs it
		return true, nil
	}
	return a.o.Now().Sub(a.firstSeen[s.Commit]) >= a.o.Lag, nil
}

// requestsOfHead is Requests of the head of a pull request; nothing if the head
// changed since the merge.
func (a *Authors) requestsOfHead(ctx context.Context, pr reconciler.PullRequest) (breakGlass string, acks []string, err error) {
	e, err := a.o.Repo.PullEvidence(ctx, pr.Number)
	if errors.Is(err, reconciler.ErrNotFound) || errors.Is(err, reconciler.ErrRefused) || err == nil && e.Commit != pr.Head {
		return "", nil, nil
	}
	if err != nil {
		return "", nil, err
	}
	breakGlass, acks = Requests(e)
	return breakGlass, acks, nil
}

// addAcks adds the acknowledgements in the comments of the pull requests that
// brought commit i of a history. Comments that cannot be read are logged; they are
// read again when the roll-out is reported. The error is only that ctx ended.
func (a *Authors) addAcks(ctx context.Context, h *History, i int, s *decide.Step) error {
	if a.o.Forge == nil {
		return nil
	}
	var err error
	numbers := []int{s.PullRequest}
	if s.PullRequest == 0 {
		var prs []reconciler.PullRequest
		prs, err = h.pullsOf(ctx, i)
		numbers = nil
		for _, pr := range prs {
			if pr.Merged && pr.BaseBranch == a.o.Branch {
				numbers = append(numbers, pr.Number)
			}
		}
	}
	for _, n := range numbers {
		acks, wrong := a.o.Acks(ctx, n)
		err = cmp.Or(err, wrong)
		s.CommentAcks = append(s.CommentAcks, acks...)
	}
	if ctx.Err() != nil {
		return err
	}
	if err != nil {
		a.o.Log.Warn("acknowledgement comments unreadable; deletion held until they can be read", "commit", reconciler.Short(s.Commit),
			"error", err)
	}
	return nil
}

// removesMany reports whether a step deletes so many documents that the deletion
// may need an acknowledgement.
func removesMany(s decide.Step) bool {
	n := 0
	for _, c := range s.Touched {
		if c.To == "" && InEstate(c.Path) {
			n++
		}
	}
	return n > decide.MinDeletions
}

// Requests returns the requests in the trailers of a commit: the reason for break-glass
// access, and the digests of the deletions that it acknowledges.
func Requests(e reconciler.Evidence) (breakGlass string, acks []string) {
	for _, t := range e.Trailers {
		switch {
		case strings.EqualFold(t.Key, breakGlassTrailer):
			breakGlass = t.Value
		case strings.EqualFold(t.Key, decide.AckTrailer):
			acks = append(acks, t.Value)
		}
	}
	return breakGlass, acks
}
