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
	*commandTable

	since      time.Time              // commands are listed from here on
	ignored    map[commandID]bool     // for as long as this run
	unanswered map[commandID]*outcome // commands that were carried out and have no answer yet
	guests     guestLimit
	failures   int // lists in a row of which no command could be answered
}

func newCommandHandler(t *commandTable) *CommandHandler {
	return &CommandHandler{commandTable: t, ignored: map[commandID]bool{}, unanswered: map[commandID]*outcome{}}
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
	if oldest := start.Add(-maxCommandAge); h.since.Before(oldest) {
		h.since = oldest
	}
	all, err := h.Forge.Commands(ctx, h.since)
	if err != nil {
		return 0, err
	}
	open := slices.DeleteFunc(slices.Clone(all), func(c reconciler.CommandComment) bool {
		_, err := h.parse(c.Line)
		return c.Answered || errors.Is(err, command.ErrOther) || h.ignored[idOf(c)]
	})
	picked, left, err := h.pick(ctx, open)
	if err != nil {
		return 0, err
	}
	progress := len(picked)+len(left) < len(open) // some were ignored
	pulls := map[int]reconciler.PullRequest{}
	for _, c := range picked {
		answered, err := h.answer(ctx, c, pulls)
		if isFinal(ctx, err) {
			return 0, err
		}
		if err != nil {
			h.Log.Warn("command not answered; trying again", "pull", c.Pull, "user", c.Author, "error", err)
		}
		if answered {
			progress = true
		} else {
			left = append(left, c.CommandComment)
		}
	}
	if progress || len(left) == 0 {
		h.failures = 0
	}
	return h.goOn(start, left), nil
}

// goOn returns when to go on with the commands that are left; 0: with the next poll.
func (h *CommandHandler) goOn(start time.Time, left []reconciler.CommandComment) time.Duration {
	h.since = start.Add(-listOverlap)
	if len(left) == 0 {
		return 0
	}
	for _, c := range left { // those have to be listed again
		if c.When.Before(h.since) {
			h.since = c.When
		}
	}
	again := min(commandsAgain<<min(h.failures, 10), maxCommandsAgain)
	h.failures++
	return again
}

// pullOf returns a pull request, zero if there is none; known are those that were read already.
func (h *CommandHandler) pullOf(ctx context.Context, n int, known map[int]reconciler.PullRequest) (reconciler.PullRequest, error) {
	if pr, ok := known[n]; ok {
		return pr, nil
	}
	pr, err := h.Forge.Pull(ctx, n)
	if err != nil && !errors.Is(err, reconciler.ErrNotFound) {
		return pr, err
	}
	known[n] = pr
	return pr, nil
}

// carryOutOnce returns the outcome of a command; nil while it is open. A command is carried out once: tried again, it
// would find itself done.
func (h *CommandHandler) carryOutOnce(ctx context.Context, pr reconciler.PullRequest, c turn) (*outcome, error) {
	id := idOf(c.CommandComment)
	if out := h.unanswered[id]; out != nil {
		return out, nil
	}
	out, err := h.carryOut(ctx, pr, c.CommandComment, c.may)
	if err != nil || out.wait {
		return nil, err
	}
	if len(h.unanswered) >= maxRemembered {
		clear(h.unanswered)
	}
	h.unanswered[id] = &out
	return &out, nil
}

// ignore leaves a command without an answer for as long as this run.
func (h *CommandHandler) ignore(c reconciler.CommandComment) {
	if len(h.ignored) >= maxRemembered {
		clear(h.ignored) // a forgotten one is judged, and ignored, once more
	}
	h.ignored[idOf(c)] = true
	delete(h.unanswered, idOf(c))
}

// turn is a command with the properties that decide its turn.
type turn struct {
	reconciler.CommandComment
	may     reconciler.Permission
	earlier int // number of earlier commands of its author on its pull request
}

func (c turn) isGuest() bool { return c.may < reconciler.CanWrite }

// pick chooses the commands to answer now: of users with write access first, and of
// each pull request the oldest of each user, then their next, and so on. It asks for
// the permissions of a bounded number of users, and ignores commands of users without
// write access beyond their limit. left are the other commands.
func (h *CommandHandler) pick(
	ctx context.Context, all []reconciler.CommandComment,
) (picked []turn, left []reconciler.CommandComment, err error) {
	type author struct {
		pull  int
		login string
	}
	earlier := map[author]int{}
	var turns []turn
	for _, c := range all {
		k := author{c.Pull, strings.ToLower(c.Author)}
		turns = append(turns, turn{CommandComment: c, earlier: earlier[k]})
		earlier[k]++
	}
	slices.SortStableFunc(turns, func(a, b turn) int {
		return cmp.Or(cmp.Compare(a.earlier, b.earlier), a.When.Compare(b.When), cmp.Compare(a.ID, b.ID))
	})
	users := newUsers(h.Forge, maxCommands)
	var writers, guests []turn
	for _, c := range turns {
		c.may, err = users.permission(ctx, c.Author)
		switch {
		case isFinal(ctx, err):
			return nil, nil, err
		case errors.Is(err, errManyUsers): // every user can comment, so do not log it
			left = append(left, c.CommandComment)
		case err != nil:
			h.Log.Warn("permission of the commenter unknown; command postponed", "pull", c.Pull, "user", c.Author, "error", err)
			left = append(left, c.CommandComment)
		case !c.isGuest():
			writers = append(writers, c)
		case h.guests.isReached(c.Author, h.Now()):
			h.ignore(c.CommandComment)
		default:
			guests = append(guests, c)
		}
	}
	ofPull := map[int]int{}
	for _, c := range slices.Concat(writers, guests) {
		if len(picked) == maxCommands || ofPull[c.Pull] == maxCommandsOfPull {
			left = append(left, c.CommandComment)
			continue
		}
		ofPull[c.Pull]++
		picked = append(picked, c)
	}
	return picked, left, nil
}

// answer carries out one command, then posts the answer in Berth's comment, which
// also records that the command was answered, then sets the reaction. It returns
// false while the outcome is open. pulls are the pull requests that were read already.
func (h *CommandHandler) answer(ctx context.Context, c turn, pulls map[int]reconciler.PullRequest) (answered bool, err error) {
	pr, err := h.pullOf(ctx, c.Pull, pulls)
	if err != nil {
		return false, err
	}
	if pr.BaseBranch != h.Branch || c.isGuest() && h.guests.isReached(c.Author, h.Now()) { // another estate's or nobody's; or too many
		h.ignore(c.CommandComment)
		return true, nil
	}
	out, err := h.carryOutOnce(ctx, pr, c)
	if out == nil || err != nil {
		return false, err
	}
	if out.record {
		if err := h.flush(ctx); err != nil {
			return false, err
		}
		out.record = false
	}
	answer := reconciler.Answer{Command: c.ID}
	if out.answer != nil {
		answer.Line, answer.Details = h.Render.Answer(*out.answer, out.explanation)
	}
	if err := h.Forge.Comment(ctx, pr.Number, reconciler.Comment{Answers: []reconciler.Answer{answer}}); err != nil {
		return false, err
	}
	if out.answered != nil {
		out.answered()
	}
	delete(h.unanswered, idOf(c.CommandComment))
	if c.isGuest() {
		h.guests.count(c.Author)
	}
	if err := h.Forge.React(ctx, c.CommandComment, out.reaction); err != nil && !errors.Is(err, reconciler.ErrNotFound) {
		h.Log.Warn("no reaction set on an answered command", "pull", c.Pull, "command", c.ID, "error", err)
	}
	return true, nil
}
