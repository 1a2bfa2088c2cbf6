package main

// elsewhere are commands of other tools, with what to use instead.
func elsewhere() map[string]string {
	const change = "the documents in Git say what runs; edit a file, and commit it or open a pull request (berth plan shows the effect)"
	words := map[string]string{
		"diff":       "berth plan shows the effect of a change",
		"logs":       "berth events shows what happened, and berth trace the story of one change; the daemon's own log is on its standard error",
		"log":        "berth events shows what happened, and berth audit list who did it",
		"history":    "berth events --instance TENANT.PROJECT/NAME shows what happened to an instance",
		"list":       "berth get KIND lists documents, and berth status shows what runs",
		"show":       "berth describe KIND NAME shows a document with its status",
		"lint":       "berth validate checks an estate",
		"check":      "berth validate checks an estate, and berth serve --check a configuration",
		"top":        "berth usage shows what jobs used",
		"exec":       "Berth runs no commands on hosts; berth queue submit runs a job",
		"ssh":        "Berth runs no commands on hosts; berth queue submit runs a job",
		"login":      "set BERTH_SERVER and BERTH_TOKEN; berth token makes the token of a service account",
		"ack-delete": "it is a command in a comment on the pull request: /berth ack-delete DIGEST",
		"retry":      "it is a command in a comment on the pull request: /berth retry",
		"rollback":   "revert the commit, and merge that",
		"undo":       "revert the commit, and merge that",
		"sbatch":     "berth queue submit submits a job",
		"submit":     "berth queue submit submits a job",
		"srun":       "berth queue submit runs a script as a job; srun itself runs on a login host",
		"salloc":     "berth queue submit runs a script as a job; salloc itself runs on a login host",
		"sacct":      "berth queue get shows a job that has ended, and berth usage sums",
		"scontrol":   "berth node list and berth queue get show nodes and jobs; berth node drains, resumes and labels",
		"squeue":     "berth queue list shows the jobs of a project",
		"scancel":    "berth queue cancel ends a job",
		"sinfo":      "berth node list shows the nodes of an instance",
		"fmt":        "berth validate checks an estate; Berth does not format files",
		"format":     "berth validate checks an estate; Berth does not format files",
		"approve":    "approve the pull request at the forge; berth plan shows which permissions it needs",
		"merge":      "merge the pull request at the forge; berth plan shows the effect first",
		"sacctmgr":   "berth explain --roles shows permissions, and berth get entitlements shows apps by project; accounts and QoS follow from the documents",
		"roles":      "berth explain --roles lists roles, and berth get rolebindings lists their members",
		"users":      "berth get rolebindings lists people, and berth describe instance NAME the users of a cluster",
		"taint":      "berth node cordon keeps new jobs from a member, and spec.cordoned of a node keeps new members from it",
		"uncordon":   "berth node uncordon undoes berth node cordon",
		"drain":      "berth node drain drains a member",
		"cordon":     "berth node cordon keeps new jobs from a member",
	}
	for _, word := range []string{"apply", "create", "edit", "delete", "remove", "rm", "scale", "set", "patch", "install", "upgrade", "uninstall", "destroy", "deploy", "up", "down"} {
		words[word] = change
	}
	for word, field := range map[string]string{
		"suspend": "suspend: true", "resume": "suspend: true, which you remove", "start": "desired_state: running", "stop": "desired_state: stopped",
		"pause": "platform/pause.yaml (kind Pause), which stops all changes on hosts while it is there", "unpause": "platform/pause.yaml (delete it)",
	} {
		words[word] = "it is a field or a file in Git: " + field + "; commit it or open a pull request"
	}
	for _, word := range []string{"reconcile", "refresh", "run"} {
		words[word] = "berth serve reconciles continuously, and berth sync --once reconciles once"
	}
	return words
}
