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
	"berth/reconciler/plan"
	"berth/schema/policy"
)

const (
	// remarksBack is how old a remark may be that nobody answered yet.
	remarksBack = 72 * time.Hour
	// remarksOverlap is how far a look goes back before the last one, as clocks
	// differ and a forge may be slow to list what was said.
	remarksOverlap = 10 * time.Minute
	// maxRemarks is how many are answered in one pass, and maxRemarksOfPull on one
	// pull request; the next pass goes on.
	maxRemarks       = 60
	maxRemarksOfPull = 10
	// remarksAgain is when it does; later if nothing came of it, up to remarksSlowest.
	remarksAgain   = 2 * time.Second
	remarksSlowest = time.Minute
	// maxPassed is how many remarks are remembered to have been passed over.
	maxPassed = 20_000
	// maxIdle is how many are answered in an hour of those who may not write, and
	// maxIdleOf of one of them; the others are passed over.
	maxIdle   = 60
	maxIdleOf = 5
)

// AnswerCommands answers what people said to Berth and was not answered. A webhook
// only makes it sooner: what counts is what the forge lists, and Berth's comment
// tells, by the command's id, that it was dealt with. Who may write
// is answered first; a stranger who says a lot, and strangers who are many, cost a
// bounded number of answers and questions.
func (r *Pulls) AnswerCommands(ctx context.Context) (again time.Duration, err error) {
	start := r.o.Now()
	since := r.heard
	if since.IsZero() {
		since = start.Add(-remarksBack)
	}
	all, err := r.o.Forge.Commands(ctx, since)
	if err != nil {
		return 0, err
	}
	next := start.Add(-remarksOverlap)
	l := listening{r: r, pulls: map[int]reconciler.PullRequest{}, permissions: map[string]reconciler.Permission{}}
	unanswered := r.unanswered(all)
	waiting, left, err := l.rank(ctx, unanswered)
	if err != nil {
		return 0, err
	}
	dealt := len(waiting)+len(left) < len(unanswered) // some were passed over
	picked, more := fairly(waiting)
	left = append(left, more...)
	for _, rem := range picked {
		done, err := l.answer(ctx, rem.CommandComment)
		var later *reconciler.RetryAfterError
		if ctx.Err() != nil || errors.As(err, &later) {
			return 0, err
		}
		if err != nil {
			r.o.Log.Warn("a remark is not answered yet", "pull", rem.Pull, "by", rem.Author, "error", err)
		}
		if !done || err != nil {
			left = append(left, rem.CommandComment)
		} else {
			dealt = true
		}
	}
	for _, rem := range left { // what is still to be answered is listed again
		if rem.When.Before(next) {
			next = rem.When
		}
	}
	if oldest := start.Add(-remarksBack); next.Before(oldest) {
		next = oldest
	}
	r.heard = next
	if dealt || len(left) == 0 {
		r.inVain = 0
	}
	if len(left) > 0 {
		again = min(remarksAgain<<min(r.inVain, 10), remarksSlowest)
		r.inVain++
	}
	return again, nil
}

// unanswered are the commands among remarks that wait for an answer.
func (r *Pulls) unanswered(all []reconciler.CommandComment) (out []reconciler.CommandComment) {
	for _, rem := range all {
		if _, err := command.Parse(rem.Line); !rem.Answered && !errors.Is(err, command.ErrOther) && !r.passed[remarkID{rem.Pull, rem.ID}] {
			out = append(out, rem)
		}
	}
	return out
}

// passOver leaves a remark without an answer for as long as this run.
func (r *Pulls) passOver(rem reconciler.CommandComment) {
	if r.passed == nil || len(r.passed) >= maxPassed {
		r.passed = map[remarkID]bool{} // what is forgotten is looked at, and passed over, once more
	}
	r.passed[remarkID{rem.Pull, rem.ID}] = true
	delete(r.owed, remarkID{rem.Pull, rem.ID})
}

// ranked is a remark in its turn.
type ranked struct {
	reconciler.CommandComment
	may  reconciler.Permission
	turn int // how many its author said on its pull request before
}

// rank asks what those may who said something, of a bounded number of them, and
// passes over what is not answered any more of those who may not write. later are
// the remarks of whom it could not be asked yet.
func (l *listening) rank(ctx context.Context, all []reconciler.CommandComment) (out []ranked, later []reconciler.CommandComment, err error) {
	type who struct {
		pull   int
		author string
	}
	turns := map[who]int{}
	for _, rem := range all {
		k := who{rem.Pull, strings.ToLower(rem.Author)}
		out = append(out, ranked{CommandComment: rem, turn: turns[k]})
		turns[k]++
	}
	slices.SortStableFunc(out, func(a, b ranked) int {
		return cmp.Or(cmp.Compare(a.turn, b.turn), a.When.Compare(b.When), cmp.Compare(a.ID, b.ID))
	})
	failed := map[string]bool{}
	known := out[:0]
	for _, one := range out {
		login := strings.ToLower(one.Author)
		if _, ok := l.permissions[login]; !ok && (failed[login] || len(failed)+len(l.permissions) >= maxRemarks) {
			later = append(later, one.CommandComment)
			continue
		}
		may, err := l.permission(ctx, one.Author)
		if wait := (*reconciler.RetryAfterError)(nil); ctx.Err() != nil || errors.As(err, &wait) {
			return nil, nil, err
		}
		if err != nil {
			l.r.o.Log.Warn("permission of the commenter unknown; command postponed", "pull", one.Pull, "by", one.Author, "error", err)
			failed[login] = true
			later = append(later, one.CommandComment)
			continue
		}
		if may < reconciler.CanWrite && l.r.idle.spent(login, l.r.o.Now()) {
			l.r.passOver(one.CommandComment)
			continue
		}
		one.may = may
		known = append(known, one)
	}
	return known, later, nil
}

// fairly picks what is answered in one pass: those who may write first, and of
// each pull request the oldest of everybody, then their next, and so on.
func fairly(waiting []ranked) (picked []ranked, more []reconciler.CommandComment) {
	rank := func(r ranked) int {
		if r.may >= reconciler.CanWrite {
			return 0
		}
		return 1
	}
	slices.SortStableFunc(waiting, func(a, b ranked) int {
		return cmp.Or(cmp.Compare(rank(a), rank(b)), cmp.Compare(a.turn, b.turn), a.When.Compare(b.When), cmp.Compare(a.ID, b.ID))
	})
	of := map[int]int{}
	for _, rem := range waiting {
		if len(picked) == maxRemarks || of[rem.Pull] == maxRemarksOfPull {
			more = append(more, rem.CommandComment)
			continue
		}
		of[rem.Pull]++
		picked = append(picked, rem)
	}
	return picked, more
}

// listening is one pass over remarks. What it asked the forge it does not ask
// again within the pass.
type listening struct {
	r           *Pulls
	pulls       map[int]reconciler.PullRequest
	permissions map[string]reconciler.Permission
}

// idle counts what was answered to people who may not write, by the hour. It is
// the remarks task's own.
type idle struct {
	since time.Time
	all   int
	of    map[string]int
}

// owe keeps what a remark came to until the answer is posted: what was done is
// done once, and is not asked for again where it would be found done.
func (r *Pulls) owe(id remarkID, out *reply) {
	if r.owed == nil || len(r.owed) >= maxPassed {
		r.owed = map[remarkID]*reply{}
	}
	r.owed[id] = out
}

// spent says whether no more of somebody's is answered for now.
func (i *idle) spent(login string, now time.Time) bool {
	if now.Sub(i.since) >= time.Hour {
		i.since, i.all, i.of = now, 0, map[string]int{}
	}
	return i.all >= maxIdle || i.of[strings.ToLower(login)] >= maxIdleOf
}

// took notes that one of somebody's was answered.
func (i *idle) took(login string) {
	i.all++
	i.of[strings.ToLower(login)]++
}

// reply is what a remark comes to.
type reply struct {
	reaction    reconciler.Reaction
	answer      *plan.Answer // nil: it is only noted that it was answered
	explanation *policy.Explanation
	wait        bool   // it is not dealt with yet
	record      bool   // what it did is to be on the remote first
	answered    func() // called once the answer is posted; nil: nothing is
}

func refuse(why string) reply {
	return reply{reaction: reconciler.Refused, answer: &plan.Answer{Kind: plan.AnswerRefused, Why: why}}
}

// nothing is the reply to a command that leaves nothing to do.
func nothing(why string) reply {
	return reply{reaction: reconciler.Understood, answer: &plan.Answer{Kind: plan.AnswerDone, Did: "nothing to do", Why: why}}
}

// did is the reply to a command that was carried out.
func did(what string) reply {
	return reply{reaction: reconciler.Accepted, answer: &plan.Answer{Kind: plan.AnswerDone, Did: what}}
}

// answer deals with one remark: first what is to be done, then the answer in
// Berth's comment, which also notes that the command was answered, then the
// reaction. It says false while it is not dealt with.
func (l *listening) answer(ctx context.Context, rem reconciler.CommandComment) (done bool, err error) {
	pr, err := l.pull(ctx, rem.Pull)
	if errors.Is(err, reconciler.ErrNotFound) {
		l.r.passOver(rem)
		return true, nil
	}
	if err != nil {
		return false, err
	}
	if pr.BaseBranch != l.r.o.Branch {
		l.r.passOver(rem) // another estate's, or nobody's
		return true, nil
	}
	may, err := l.permission(ctx, rem.Author)
	if err != nil {
		return false, err
	}
	if may < reconciler.CanWrite && l.r.idle.spent(rem.Author, l.r.o.Now()) {
		l.r.passOver(rem)
		return true, nil
	}
	id := remarkID{rem.Pull, rem.ID}
	out := l.r.owed[id]
	if out == nil {
		if out, err = l.comesTo(ctx, pr, rem, may); err != nil || out.wait {
			return false, err
		}
		l.r.owe(id, out)
	}
	if out.record {
		if err := l.r.persisted(ctx); err != nil {
			return false, err
		}
		out.record = false
	}
	one := reconciler.Answer{Command: rem.ID}
	if out.answer != nil {
		one.Line, one.Details = l.r.o.Render.Answer(*out.answer, out.explanation)
	}
	if err := l.r.o.Forge.Comment(ctx, pr.Number, reconciler.Comment{Answers: []reconciler.Answer{one}}); err != nil {
		return false, err
	}
	if out.answered != nil {
		out.answered()
	}
	delete(l.r.owed, id)
	if may < reconciler.CanWrite {
		l.r.idle.took(rem.Author)
	}
	if err := l.r.o.Forge.React(ctx, rem, out.reaction); err != nil && !errors.Is(err, reconciler.ErrNotFound) {
		l.r.o.Log.Warn("no reaction set beside an answered command", "pull", rem.Pull, "command", rem.ID, "error", err)
	}
	return true, nil
}

// comesTo does what a remark asks for and says what came of it.
func (l *listening) comesTo(ctx context.Context, pr reconciler.PullRequest, rem reconciler.CommandComment, may reconciler.Permission) (*reply, error) {
	c, wrong := command.Parse(rem.Line)
	var out reply
	switch {
	case may == reconciler.NoPermission:
		out = reply{reaction: reconciler.Refused} // a stranger gets no words
	case rem.Edited:
		out = refuse("edited commands are not read; write a new comment")
		out.reaction = reconciler.Confused
	case wrong != nil:
		out = refuse(wrong.Error())
		out.reaction = reconciler.Confused
	default:
		var err error
		if out, err = l.r.obey(ctx, c, pr, rem, may); err != nil || out.wait {
			return &out, err
		}
	}
	if out.answer != nil {
		out.answer.To, out.answer.Said = rem.Author, rem.Line
	}
	l.r.o.Log.Info("command answered", "pull", pr.Number, "by", rem.Author, "command", string(c.Verb), "came_to", string(out.reaction))
	return &out, nil
}

func (l *listening) pull(ctx context.Context, n int) (reconciler.PullRequest, error) {
	return once(&l.pulls, n, func() (reconciler.PullRequest, error) { return l.r.o.Forge.Pull(ctx, n) })
}

func (l *listening) permission(ctx context.Context, login string) (reconciler.Permission, error) {
	return once(&l.permissions, strings.ToLower(login), func() (reconciler.Permission, error) { return l.r.o.Forge.Permission(ctx, login) })
}
