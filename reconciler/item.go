package reconciler

import (
	"fmt"

	"berth/schema"
)

// Item is the key of a queue: it names what to reconcile, never what happened.
// Equal items that wait are reconciled once.
type Item struct {
	Task   Task
	Unit   schema.Key // of TaskUnit, and the published resource of TaskArtifact
	Pull   int        // of TaskPull
	Commit string     // of TaskRollout: a commit of main; of TaskCancelChecks: the checked commit
	Ref    string     // of TaskGroup
}

// Task is a kind of work. Its value is the label "task" of the metrics.
type Task string

// Tasks of the estate and its units.
const (
	TaskEstate    Task = "estate"    // fetch, decide the new commits of main
	TaskUnit      Task = "unit"      // bring one unit to what is in force
	TaskPlace     Task = "place"     // place waiting members on nodes that became free
	TaskArtifacts Task = "artifacts" // record which published resources are in force
	TaskArtifact  Task = "artifact"  // verify the bytes of one published resource
	TaskDates     Task = "dates"     // find when documents came to main
)

// Tasks of pull requests. They need a forge.
const (
	TaskPulls        Task = "pulls"   // list the open pull requests
	TaskPull         Task = "pull"    // plan one pull request
	TaskReplan       Task = "replan"  // plan all open pull requests again
	TaskGroup        Task = "group"   // plan one group of the forge's merge queue
	TaskShow         Task = "show"    // publish plans and checks
	TaskCancelChecks Task = "settle"  // cancel the unfinished checks of a commit
	TaskRollout      Task = "follow"  // publish the roll-out of a merged commit
	TaskCommands     Task = "remarks" // answer commands in comments
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
		return string(i.Task) + " " + Short(i.Commit)
	case TaskGroup:
		return "group " + i.Ref
	}
	return string(i.Task)
}
