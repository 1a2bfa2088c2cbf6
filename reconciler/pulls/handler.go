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
)

const (
	// maxCommandAge is the age of the oldest command that is answered.
	maxCommandAge = 72 * time.Hour
	// listOverlap is how far a list goes back before the last one, because clocks
	// differ and a forge may be slow to list a comment.
	listOverlap = 10 * time.Minute
	// maxCommands is how many commands are answered at a time, and maxCommandsOfPull
	// of one pull request.
	maxCommands       = 60
	maxCommandsOfPull = 10
	// commandsAgain is when the others follow; later, up to maxCommandsAgain, if no
	// command could be answered.
	commandsAgain    = 2 * time.Second
	maxCommandsAgain = time.Minute
	// maxRemembered bounds the commands that are remembered as ignored, or whose
	// answer has to be posted.
	maxRemembered = 20_000
	// Of users without write access, so many commands are answered in an hour: of all
	// of them, and of one.
	maxGuestCommands       = 60
	maxGuestCommandsOfUser = 5
)

// CommandHandler answers the commands in comments. Only one goroutine at a time
// calls AnswerCommands.
type CommandHandler struct {
	*env
	planner  *Planner
	rollouts *RollOuts
	acks     *Acknowledgements
	applies  *Applies
	verbs    []verb

	since      time.Time              // commands are listed from here on
	ignored    map[commandID]bool     // for as long as this run
	unanswered map[commandID]*outcome // commands that were carried out and have no answer yet
	guests     guestLimit
	failures   int // lists in a row of which no command could be answered
}

func newCommandHandler(e *env, p *Planner, rollouts *RollOuts, acks *Acknowledgements, applies *Applies) *CommandHandler {
	h := &CommandHandler{env: e, planner: p, rollouts: rollouts, acks: acks, applies: applies, ignored: map[commandID]bool{}, unanswered: map[commandID]*outcome{}}
	h.verbs = h.table()
	return h
}

// guestLimit counts, by the hour, the answers to users without write access.
type guestLimit struct {
	since  time.Time
	all    int
	ofUser map[string]int
}

// isReached reports whether no more commands of a user are answered now.
func (g *guestLimit) isReached(login string, now time.Time) bool {
	if now.Sub(g.since) >= time.Hour {
		g.since, g.all, g.ofUser = now, 0, map[string]int{}
	}
	return g.all >= maxGuestCommands || g.ofUser[strings.ToLower(login)] >= maxGuestCommandsOfUser
}

func (g *guestLimit) count(login string) {
	g.all++
	g.ofUser[strings.ToLower(login)]++
}

// AnswerCommands answers the commands that have no answer yet, and returns when to
// go on; 0: with the next poll. A webhook only makes it sooner: the list of the
// forge counts, and Berth's comment records the ids of answered commands. Users with
// write access come first, so that others, however many, cost a bounded number of
// answers and requests.
func (h *CommandHandler) AnswerCommands(ctx context.Context) (again time.Duration, err error) {
	start := h.Now()
	oldest := start.Add(-maxCommandAge)
	if h.since.IsZero() {
		h.since = oldest
	}
	all, err := h.Forge.Commands(ctx, h.since)
	if err != nil {
		return 0, err
	}
	l := commandList{CommandHandler: h, pulls: map[int]reconciler.PullRequest{}, permissions: map[string]reconciler.Permission{}}
	open := slices.DeleteFunc(slices.Clone(all), func(c reconciler.CommandComment) bool {
		_, err := h.parse(c.Line)
		return c.Answered || errors.Is(err, command.ErrOther) || h.ignored[idOf(c)]
	})
	ranked, left, err := l.rank(ctx, open)
	if err != nil {
		return 0, err
	}
	progress := len(ranked)+len(left) < len(open) // some were ignored
	picked, more := pick(ranked)
	left = append(left, more...)
	for _, c := range picked {
		answered, err := l.answer(ctx, c.CommandComment)
		var later *reconciler.RetryAfterError
		if ctx.Err() != nil || errors.As(err, &later) {
			return 0, err
		}
		if err != nil {
			h.Log.Warn("command not answered; trying again", "pull", c.Pull, "user", c.Author, "error", err)
		}
		if answered && err == nil {
			progress = true
		} else {
			left = append(left, c.CommandComment)
		}
	}
	next := start.Add(-listOverlap)
	for _, c := range left { // those have to be listed again
		if c.When.Before(next) {
			next = c.When
		}
	}
	if next.Before(oldest) {
		next = oldest
	}
	h.since = next
	if progress || len(left) == 0 {
		h.failures = 0
	}
	if len(left) > 0 {
		again = min(commandsAgain<<min(h.failures, 10), maxCommandsAgain)
		h.failures++
	}
	return again, nil
}

// ignore leaves a command without an answer for as long as this run.
func (h *CommandHandler) ignore(c reconciler.CommandComment) {
	if len(h.ignored) >= maxRemembered {
		clear(h.ignored) // a forgotten one is judged, and ignored, once more
	}
	h.ignored[idOf(c)] = true
	delete(h.unanswered, idOf(c))
}

// commandList is one list of commands. It asks the forge each question once.
type commandList struct {
	*CommandHandler
	pulls       map[int]reconciler.PullRequest
	permissions map[string]reconciler.Permission // by lower-case login
}

func (l *commandList) pull(ctx context.Context, n int) (reconciler.PullRequest, error) {
	if pr, ok := l.pulls[n]; ok {
		return pr, nil
	}
	pr, err := l.Forge.Pull(ctx, n)
	if err == nil {
		l.pulls[n] = pr
	}
	return pr, err
}

func (l *commandList) permission(ctx context.Context, login string) (reconciler.Permission, error) {
	key := strings.ToLower(login)
	if may, ok := l.permissions[key]; ok {
		return may, nil
	}
	may, err := l.Forge.Permission(ctx, login)
	if err == nil {
		l.permissions[key] = may
	}
	return may, err
}

// rankedCommand is a command with the properties that decide its turn.
type rankedCommand struct {
	reconciler.CommandComment
	may  reconciler.Permission
	turn int // number of earlier commands of its author on its pull request
}

func (c rankedCommand) compare(o rankedCommand) int {
	return cmp.Or(cmp.Compare(c.turn, o.turn), c.When.Compare(o.When), cmp.Compare(c.ID, o.ID))
}

// rank asks for the permissions of a bounded number of users, and ignores commands
// of users without write access beyond their limit. postponed are the commands of
// users whose permission is not known yet.
func (l *commandList) rank(ctx context.Context, all []reconciler.CommandComment) (ranked []rankedCommand, postponed []reconciler.CommandComment, err error) {
	type author struct {
		pull  int
		login string
	}
	turns := map[author]int{}
	for _, c := range all {
		k := author{c.Pull, strings.ToLower(c.Author)}
		ranked = append(ranked, rankedCommand{CommandComment: c, turn: turns[k]})
		turns[k]++
	}
	slices.SortStableFunc(ranked, rankedCommand.compare)
	failed := map[string]bool{}
	known := ranked[:0]
	for _, c := range ranked {
		login := strings.ToLower(c.Author)
		if _, ok := l.permissions[login]; !ok && (failed[login] || len(failed)+len(l.permissions) >= maxCommands) {
			postponed = append(postponed, c.CommandComment)
			continue
		}
		c.may, err = l.permission(ctx, c.Author)
		if later := (*reconciler.RetryAfterError)(nil); ctx.Err() != nil || errors.As(err, &later) {
			return nil, nil, err
		}
		if err != nil {
			l.Log.Warn("permission of the commenter unknown; command postponed", "pull", c.Pull, "user", c.Author, "error", err)
			failed[login] = true
			postponed = append(postponed, c.CommandComment)
			continue
		}
		if c.may < reconciler.CanWrite && l.guests.isReached(login, l.Now()) {
			l.ignore(c.CommandComment)
			continue
		}
		known = append(known, c)
	}
	return known, postponed, nil
}

// pick chooses the commands to answer now: of users with write access first, and of
// each pull request the oldest of each user, then their next, and so on.
func pick(ranked []rankedCommand) (picked []rankedCommand, more []reconciler.CommandComment) {
	guest := func(c rankedCommand) int {
		if c.may >= reconciler.CanWrite {
			return 0
		}
		return 1
	}
	slices.SortStableFunc(ranked, func(a, b rankedCommand) int { return cmp.Or(cmp.Compare(guest(a), guest(b)), a.compare(b)) })
	ofPull := map[int]int{}
	for _, c := range ranked {
		if len(picked) == maxCommands || ofPull[c.Pull] == maxCommandsOfPull {
			more = append(more, c.CommandComment)
			continue
		}
		ofPull[c.Pull]++
		picked = append(picked, c)
	}
	return picked, more
}

// answer carries out one command, then posts the answer in Berth's comment, which
// also records that the command was answered, then sets the reaction. It returns
// false while the outcome is open.
func (l *commandList) answer(ctx context.Context, c reconciler.CommandComment) (answered bool, err error) {
	pr, err := l.pull(ctx, c.Pull)
	if err != nil && !errors.Is(err, reconciler.ErrNotFound) {
		return false, err
	}
	if err != nil || pr.BaseBranch != l.Branch { // to another estate, or to none
		l.ignore(c)
		return true, nil
	}
	may, err := l.permission(ctx, c.Author)
	if err != nil {
		return false, err
	}
	guest := may < reconciler.CanWrite
	if guest && l.guests.isReached(c.Author, l.Now()) {
		l.ignore(c)
		return true, nil
	}
	out := l.unanswered[idOf(c)]
	if out == nil {
		now, err := l.carryOut(ctx, pr, c, may)
		if err != nil || now.wait {
			return false, err
		}
		if len(l.unanswered) >= maxRemembered {
			clear(l.unanswered)
		}
		// A command is carried out once: tried again, it would find itself done.
		out = &now
		l.unanswered[idOf(c)] = out
	}
	if out.record {
		if err := l.flush(ctx); err != nil {
			return false, err
		}
		out.record = false
	}
	answer := reconciler.Answer{Command: c.ID}
	if out.answer != nil {
		answer.Line, answer.Details = l.Render.Answer(*out.answer, out.explanation)
	}
	if err := l.Forge.Comment(ctx, pr.Number, reconciler.Comment{Answers: []reconciler.Answer{answer}}); err != nil {
		return false, err
	}
	if out.answered != nil {
		out.answered()
	}
	delete(l.unanswered, idOf(c))
	if guest {
		l.guests.count(c.Author)
	}
	if err := l.Forge.React(ctx, c, out.reaction); err != nil && !errors.Is(err, reconciler.ErrNotFound) {
		l.Log.Warn("no reaction set on an answered command", "pull", c.Pull, "command", c.ID, "error", err)
	}
	return true, nil
}

// carryOut carries out a command.
func (h *CommandHandler) carryOut(ctx context.Context, pr reconciler.PullRequest, c reconciler.CommandComment, may reconciler.Permission) (out outcome, err error) {
	cmd, wrong := h.parse(c.Line)
	switch {
	case may == reconciler.NoPermission:
		out = outcome{reaction: reconciler.Refused} // strangers get no text
	case c.Edited:
		out = confused("edited commands are not read; write a new comment")
	case wrong != nil:
		out = confused(wrong.Error())
	default:
		if out, err = h.dispatch(ctx, &request{Command: cmd, pull: pr, comment: c, may: may}); err != nil || out.wait {
			return out, err
		}
	}
	if out.answer != nil {
		out.answer.To, out.answer.Said = c.Author, c.Line
	}
	h.Log.Info("command answered", "pull", pr.Number, "user", c.Author, "command", cmd.Verb, "reaction", string(out.reaction))
	return out, nil
}

// flush waits until all records are on the remote.
func (h *CommandHandler) flush(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, flushTimeout)
	defer cancel()
	return h.Status.Flush(ctx)
}
