package pulls

import (
	"fmt"
	"slices"
	"strings"

	"berth/reconciler"
	"berth/reconciler/command"
	"berth/reconciler/plan"
	"berth/schema/policy"
)

// request is a command to carry out.
type request struct {
	command.Command
	state   *reconciler.State
	pull    reconciler.PullRequest
	comment reconciler.CommandComment
	may     reconciler.Permission
}

func (r *request) id() commandID { return idOf(r.comment) }

// outcome is the result of a command.
type outcome struct {
	reaction    reconciler.Reaction
	answer      *plan.Answer        // nil: only the reaction is set
	explanation *policy.Explanation // for the answer
	wait        bool                // no result yet: the command is read again
	record      bool                // its records have to be on the remote before the answer
	answered    func()              // called once the answer is posted; may be nil
}

func refused(why string) outcome {
	return outcome{reaction: reconciler.Refused, answer: &plan.Answer{Kind: plan.AnswerRefused, Why: why}}
}

// confused refuses a text that is not a command.
func confused(why string) outcome {
	out := refused(why)
	out.reaction = reconciler.Confused
	return out
}

// nothingToDo is the outcome of a command that leaves nothing to do.
func nothingToDo(why string) outcome {
	return outcome{reaction: reconciler.Understood, answer: &plan.Answer{Kind: plan.AnswerDone, Did: "nothing to do", Why: why}}
}

// done is the outcome of a command that was carried out.
func done(what string) outcome {
	return outcome{reaction: reconciler.Accepted, answer: &plan.Answer{Kind: plan.AnswerDone, Did: what}}
}

// recorded is done for a command whose records have to be on the remote before the
// answer. but are sentences about omitted parts.
func recorded(what string, but []string) outcome {
	out := done(what)
	out.record, out.answer.Why = true, joinSome(but)
	return out
}

// joinSome joins the first sentences to a line.
func joinSome(all []string) string {
	const most = 3
	slices.Sort(all)
	all = slices.Compact(all)
	if more := len(all) - most; more > 0 {
		all = append(all[:most:most], fmt.Sprintf("and %d more", more))
	}
	return strings.Join(all, "; ")
}
