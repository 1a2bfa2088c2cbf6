package reconciler

import (
	"fmt"

	"berth/schema"
)

// Item is a key of the queue: where to look, never what happened.
type Item struct {
	Task Task
	Unit schema.Key // of TaskUnit, and what TaskArtifact looks at
	Pull int        // of TaskPull
	// Commit is the merged commit of TaskFollow, and whose checks TaskSettle looks at.
	Commit string
	Ref    string // of TaskGroup
}

// Task is what to look at.
type Task string

// The tasks.
const (
	TaskEstate       Task = "estate" // fetch, decide the new commit
	TaskUnit         Task = "unit"   // bring one unit to what is in force
	TaskPlace        Task = "place"  // give nodes that came free to who waits for one
	TaskPulls        Task = "pulls"  // list the open pull requests
	TaskPull         Task = "pull"   // plan what one pull request would do
	TaskReplan       Task = "replan" // plan all open pull requests again, as what they rest on changed
	TaskGroup        Task = "group"  // plan what a group of the forge's merge queue would do
	TaskShow         Task = "show"   // show what was planned and not shown yet
	TaskCancelChecks Task = "settle" // end checks of a commit that nobody works on
	TaskRollout      Task = "follow" // tell a merged pull request what became of it
	// TaskRemarks answers what people said to Berth.
	TaskCommands Task = "remarks"

	TaskArtifacts Task = "artifacts" // record what a decision says of published things
	TaskArtifact  Task = "artifact"  // look at the bytes of one

	TaskDates Task = "dates" // find when documents came
)

func (i Item) String() string {
	switch i.Task {
	case TaskUnit:
		return i.Unit.String()
	case TaskArtifact:
		return "artifact " + i.Unit.String()
	case TaskPull:
		return fmt.Sprintf("pull %d", i.Pull)
	case TaskRollout, TaskCancelChecks:
		return string(i.Task) + " " + i.Commit[:min(10, len(i.Commit))]
	case TaskGroup:
		return "group " + i.Ref
	}
	return string(i.Task)
}
