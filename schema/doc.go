// Package schema holds the nouns of Berth: the documents of an estate, their meaning
// after policy, and the findings about them. Every other package uses these nouns.
//
// The package must not know YAML, CUE, Git, a forge, a host or a scheduler. It
// imports the standard library only.
//
// # Kinds
//
// The table in kinds.go has one row for each kind of document. A new kind takes that
// row, a Go struct here and a CUE definition in schema/cue.
//
// # Glossary
//
// One word has one meaning, in code, messages and documentation:
//
//	estate              the Git repository with declarations
//	document            a YAML file with one kind in it; its Key says what it declares
//	kind                what a document declares: a row of the table of kinds
//	tenant tree         the subtree of one tenant; platform/ is the platform's tree
//	desired             what one tree declares, valid documents only
//	effective           desired after policy, with a decision for each value that policy changed
//	in force            what main says, valid and permitted (branch berth/in-force)
//	held change         a change that is on main and not in force; its reason is one of invalid,
//	                    unauthorized, denied by policy, stale plan, blocked deletion, waiting for reference
//	blocked deletion    a deletion that waits for a valid tree or an acknowledgement
//	acknowledged deletion  a deletion larger than the limit that a user with the permission confirmed
//	resource            anything with a status on berth/status
//	unit                what is deployed as one whole with its own plan: an instance or a shared runtime
//	member              one part of a unit on one node
//	reconcile           one run of the loop for a key
//	observe             ask hosts what runs; the answer is an observation
//	snapshot of jobs    the running and queued jobs of a unit at one time, in memory only
//	impact              what an action or a plan does to services, nodes and the jobs of a snapshot
//	class of a difference  what brings it into effect: live, reconfigure, restart, needs drain, refused
//	unavailable         a declared member that does not run, also because it is drained
//	finding             result of a check on a document, with severity error or warning
//	decision            result of policy or authority, allowed or denied, with its rule
//	check               result on a pull request: success, failure or neutral
//	comment             text that Berth posts at the forge
//	command             text that a person writes to Berth
//	audit record        record of who did what
//	event               something that happened to a unit
//	firing              an event that says that a HookRule took effect; its effects besides the alert follow it
//	approved plan       a plan that changed after review and was confirmed
//	stale plan          a pull request's plan that changed after review
//	break-glass access  emergency use of the platform's rights
//	user with permission X  whoever may do X
//	debounce, coalesce  wait for several triggers and handle them as one
//	throttle, rate limit  limit the requests to the forge
//	take leadership     start a daemon as the leader
//	work tree, local checkout  a directory or commit on a developer's machine
//	freeze              stop applying because history or a tree cannot be trusted
//	converged           nothing more to do
//	assignment, placement  the node for a member
//	unschedulable       no node for a member
package schema
