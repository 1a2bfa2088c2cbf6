package main

import (
	"strings"

	"berth/schema"
)

// byCommit says how a change is made.
const byCommit = "the documents in Git say what runs; edit a file, and commit it or open a pull request (berth plan shows the effect)"

// foreignCommands are commands of other tools, and of Berth elsewhere, with what to use instead.
func foreignCommands() map[string]string {
	words := map[string]string{}
	add := func(instead string, commands ...string) {
		for _, c := range commands {
			words[c] = instead
		}
	}
	for _, k := range schema.Kinds() {
		add("it is a kind of document: berth get "+k.Plural()+" lists them", k.Plural(), strings.ToLower(string(k)), string(k))
		add("it is a kind of document: berth schema docs without an argument shows its fields", "schema "+string(k),
			"schema "+k.Plural(), "schema "+strings.ToLower(string(k)))
	}
	add("berth node list INSTANCE lists the members of an instance, and berth get nodes the nodes of the estate", "nodes")
	add(byCommit, "create", "edit", "delete", "remove", "rm", "scale", "set", "patch", "install", "upgrade", "uninstall",
		"destroy", "deploy", "up", "down", "replace", "update", "new", "add", "annotate", "import", "prune", "expose",
		"autoscale", "migrate")
	for word, field := range map[string]string{
		"suspend": "suspend: true", "resume": "suspend: true, which you remove", "start": "desired_state: running",
		"stop":    "desired_state: stopped",
		"pause":   "platform/pause.yaml (kind Pause), which stops all changes on hosts while it is there",
		"unpause": "platform/pause.yaml (delete it)",
	} {
		add("it is a field or a file in Git: "+field+"; commit it or open a pull request", word)
	}
	add("berth serve reconciles continuously, and berth sync --once reconciles once", "reconcile", "refresh",
		"server", "daemon", "agent", "controller")
	add("revert the commit, and merge that", "rollback", "undo", "revert")
	add("commit the change; berth status shows the roll-out, and berth node restart restarts the daemon of a member",
		"rollout", "restart", "reload")
	add("berth status shows units and held changes; berth sync --once ends when all units have converged", "wait", "health",
		"ps", "stat", "stats", "state", "ls", "tree", "all")
	add("berth plan shows the effect of a change", "diff", "preview", "template", "dry-run")
	add("berth validate checks an estate, and berth plan shows the effect of a change", "test", "lint")
	add("berth validate checks an estate, and berth serve --check a configuration", "check", "doctor", "config")
	add("berth validate checks an estate; Berth does not format files", "fmt", "format")
	add("berth init DIR writes an estate and its berth.yaml", "bootstrap", "setup", "start-project")
	add("berth explain --roles shows the permissions of each role; berth plan --author LOGIN checks those of a person",
		"auth", "can-i", "whoami", "role", "permissions", "permission")
	add("berth explain --roles lists roles, and berth get rolebindings lists their members", "roles")
	add("berth get rolebindings lists people, and berth describe instance NAME the users of a cluster", "users", "user")
	add("set BERTH_SERVER and BERTH_TOKEN; berth token makes the token of a service account", "login", "logout")
	add("-c names a berth.yaml, and --repo the repository of an estate; there is nothing to switch", "context",
		"namespace", "namespaces", "ns", "workspace", "env", "use")
	add("berth get instances and berth get sharedruntimes list clusters, and berth status shows what runs", "cluster", "clusters",
		"cluster-info")
	add("the repository of the estate is repository.url of berth.yaml", "repo", "repository", "remote")
	add("berth get apps lists the apps of the catalog, and berth describe instance NAME shows a deployed one; a merged change is "+
		"reconciled without a command",
		"app", "apps", "application")
	add("berth get without an argument lists the kinds, and berth schema docs shows their fields", "api-resources",
		"api-versions", "kinds", "crd")
	add("berth get KIND lists documents, and berth status shows what runs", "list", "search", "pods", "pod", "deployments",
		"deployment", "kustomization", "kustomizations", "helmrelease")
	add("berth describe KIND NAME shows a document with its status", "show", "inspect", "view")
	add("Berth runs no commands on hosts; berth queue submit runs a job", "exec", "ssh", "attach", "debug", "cp",
		"port-forward", "console", "shell", "run")
	add("berth help COMMAND shows the help of a command", "man", "manual", "usage-help")
	add("Git and the hosts hold all state: there is nothing to clean or unlock", "gc", "clean", "unlock", "force-unlock", "lock")
	add("the control host keeps backups of each cluster; deploy/operate.md shows how to restore one", "backup", "restore")
	add("secrets stay out of the estate: berth.yaml names their files", "secret", "secrets")
	add("git does that, in a clone of the estate", "pull", "push", "fetch", "clone", "commit", "branch", "checkout", "rebase", "blame")
	for _, tool := range []string{"kubectl", "oc", "k9s", "flux", "argocd", "argo", "terraform", "tofu", "helm",
		"kustomize", "ansible", "git", "slurm"} {
		add(tool+" is another tool: berth help lists the commands of Berth; "+byCommit, tool)
	}
	add("the command begins with berth once", "berth")
	addComments(add)
	addSlurm(add)
	addSubcommands(add)
	return words
}

// addComments adds the commands of a pull request.
func addComments(add func(instead string, commands ...string)) {
	const comment = "it is a command in a comment on the pull request: "
	add(comment+"write it as the first line there, such as /berth apply COMMIT", "/berth", "@berth")
	add(comment+"/berth ack-delete DIGEST", "ack-delete")
	add(comment+"/berth retry", "retry")
	add(byCommit+"; a held change comes into force by a comment on its pull request: /berth apply COMMIT", "apply")
	add("approve the pull request at the forge; berth plan shows which permissions it needs", "approve")
	add("merge the pull request at the forge; berth plan shows the effect first", "merge")
}

// addSlurm adds the commands of Slurm, and those about jobs and nodes.
func addSlurm(add func(instead string, commands ...string)) {
	add("berth queue submit submits a job", "sbatch", "submit")
	add("berth queue submit runs a script as a job; srun itself runs on a login host", "srun")
	add("berth queue submit runs a script as a job; salloc itself runs on a login host", "salloc")
	add("berth queue get shows a job that has ended, and berth usage sums", "sacct", "sreport", "sstat")
	add("berth node list and berth queue get show nodes and jobs; berth node drains, resumes and labels", "scontrol")
	add("berth queue list shows the jobs of a project", "squeue", "jobs", "job")
	add("berth queue cancel ends a job", "scancel", "cancel", "kill")
	add("berth node list shows the nodes of an instance", "sinfo")
	add("berth explain --roles shows permissions, and berth get entitlements shows apps by project; accounts and QoS follow from the "+
		"documents", "sacctmgr", "quota", "limits")
	add("they are fields of an instance: berth describe instance NAME, and berth explain NAME config.partitions",
		"partition", "partitions", "qos")
	add("scontrol does that on a login host; berth queue submit, list, get and cancel work from everywhere", "hold",
		"release", "requeue", "queue hold", "queue release", "queue requeue", "queue suspend", "queue resume", "queue update")
	add("berth usage shows what jobs used", "top")
	add("berth node cordon keeps new jobs from a member, and spec.cordoned of a node keeps new members from it", "taint", "node taint")
	add("berth node uncordon undoes berth node cordon", "uncordon", "untaint", "node untaint")
	add("berth node drain drains a member", "drain", "node evict")
	add("berth node cordon keeps new jobs from a member", "cordon")
	add("berth node label labels a member; labels of documents are in metadata.labels", "label")
}

// addSubcommands adds what people write after queue, node, audit and other groups, and commands
// about logs.
func addSubcommands(add func(instead string, commands ...string)) {
	add("berth events shows what happened, and berth trace the story of one change; the daemon's own log is on its standard error", "logs")
	add("berth events shows what happened, and berth audit list who did it", "log")
	add("berth events --instance TENANT.PROJECT/NAME shows what happened to an instance", "history")
	add("berth queue get shows one job, and berth queue list all", "queue show", "queue describe", "queue status",
		"queue info", "queue watch", "queue top", "queue ls")
	add("berth queue cancel ends a job", "queue rm", "queue remove", "queue delete", "queue kill", "queue stop")
	add("berth queue output shows the output of a job", "queue logs", "queue log", "queue tail", "queue cat")
	add("berth queue submit submits a job", "queue run", "queue add", "queue create", "queue new")
	add("berth node list shows the members of an instance, and berth get nodes the nodes of the estate", "node ls",
		"node get", "node show", "node describe", "node status")
	add("berth node remove removes a member; a node is deleted by its document: "+byCommit, "node delete", "node rm")
	add("berth node restart restarts the daemon of a member; Berth does not restart hosts", "node reboot", "node reload",
		"node power-cycle")
	add("a node is declared by its document in platform/nodes: "+byCommit, "node add", "node create", "node join")
	add("berth audit list lists the records", "audit ls", "audit show", "audit get", "audit log", "audit logs", "audit search")
	add("berth audit verify verifies the chain", "audit check", "audit validate")
	add("berth events shows what happened", "get events", "get event", "get logs", "get log")
	add("berth queue list shows the jobs of a project", "get jobs", "get job", "get queue", "get queues")
	add("berth status shows what runs", "get status", "get all", "get pods", "get members")
	add("berth audit list shows who did what", "get audit")
	add("berth usage shows what jobs used", "get usage")
	add("berth get rolebindings lists people", "get users", "get user", "get roles", "get people")
	add("berth get instances and berth get sharedruntimes list clusters", "get clusters", "get cluster")
	add("there are scripts for bash, fish, powershell and zsh", "completion ksh", "completion csh", "completion tcsh",
		"completion sh", "completion dash", "completion ash")
	add("berth schema docs shows the kinds and fields, and berth schema export writes JSON Schema", "schema list",
		"schema get", "schema show")
}

// foreignFlags are flags of other tools, as cli.Elsewhere takes them.
func foreignFlags() map[string][]string {
	words := map[string][]string{}
	add := func(instead []string, flags ...string) {
		for _, f := range flags {
			words[f] = instead
		}
	}
	const inNames = "names hold tenant and project, as TENANT.PROJECT/NAME; a command without a name covers all of them"
	add([]string{"--project", "--instance", inNames}, "--namespace", "--tenant", "--org", "--project")
	add([]string{"--project", "--tasks", inNames + "; for a number of lines, use head or tail"}, "-n")
	add([]string{inNames}, "-A", "--all-namespaces", "--all", "-a")
	add([]string{"--watch", "--follow", "berth status --watch and berth events --follow show what changes"}, "-w", "--watch", "--follow")
	add([]string{"--follow",
		"berth status --watch and berth events --follow show what changes; documents are read together, from the directory of the " +
			"estate, and -c names a berth.yaml"}, "-f")
	add([]string{"--config", "documents are read together, from the directory of the estate"}, "--filename", "--file",
		"--recursive", "-R", "-k", "--kustomize")
	add([]string{"--repo", "--dir", "--work-dir", "name the directory as the argument, or run the command in it"}, "--dir",
		"--repo", "--directory", "--path", "--chdir", "-C", "--git-dir", "--work-tree", "-D")
	add([]string{"--config", "--cpus-per-task", "--repo", "this command reads no berth.yaml"}, "-c", "--config",
		"--kubeconfig", "--context", "--kube-context", "--cluster")
	add([]string{"--since", "--from", "berth events and berth audit list have --since, and berth usage has --from"},
		"--since", "--from", "--since-time", "--after", "--month", "--starttime", "-S")
	add([]string{"--to", "the newest are last; berth usage has --to"}, "--until", "--to", "--before", "--endtime", "-E")
	add([]string{"use head or tail: berth COMMAND | tail -n 20"}, "--limit", "--tail", "--lines", "--head-lines",
		"--max-count", "--chunk-size")
	add([]string{"--actor", "--author", "--user", "the forge or the token identifies the user"}, "--user", "-u", "--as",
		"--login", "--actor", "--author")
	add([]string{"--label", "there are no labels to select by"}, "--selector", "--labels", "-l")
	add([]string{"--phase", "--state", "-o json has all fields to select by"}, "--field-selector", "--status", "--kind",
		"--type", "--reason")
	add([]string{"there is no sorting: -o json has all fields, which jq can sort"}, "--sort-by", "--sort")
	add([]string{"--output json"}, "--show-labels", "--json", "--format", "--columns", "--template", "--fields")
	add([]string{"--rev", "--head"}, "--branch", "--ref", "--revision", "--commit", "-b")
	add([]string{"--output", "the command writes to standard output: berth COMMAND > FILE"}, "--out", "-o")
	add([]string{"berth plan shows the effect of a change; nothing changes on a host before the merge"}, "--dry-run",
		"--noop", "--preview", "--diff")
	add([]string{"Berth asks no questions"}, "--yes", "-y", "--auto-approve", "--no-input", "--non-interactive")
	add([]string{"no flag skips a check: berth status shows why a change is held, and the next step"}, "--force",
		"--grace-period", "--ignore-daemonsets", "--disable-eviction", "--skip-checks", "--no-verify")
	add([]string{"Berth deletes what main no longer declares: " + byCommit}, "--prune", "--destroy", "--cascade", "--purge")
	add([]string{"a plan covers the whole change: commit parts of it one by one"}, "--target", "-target", "--only",
		"--resource", "--include", "--exclude")
	add([]string{"values are in the documents: " + byCommit}, "--set", "--values", "--var", "--var-file", "--image", "--replicas")
	add([]string{"--verbose", "there are no levels of detail: -o json has all fields, and the log of the daemon each step"},
		"--verbose", "-v", "--debug", "--log-level")
	add([]string{"the exit status says the same: send the output to /dev/null"}, "--quiet", "-q", "--silent", "-s")
	add([]string{"set NO_COLOR=1 for text without colors"}, "--no-color", "--no-colour", "--color", "--colour")
	add([]string{"berth sync --once ends when everything has converged"}, "--once")
	add([]string{"systemd runs the daemon: deploy/systemd"}, "--daemon", "--detach", "--background", "-d")
	add([]string{"it is the field listen of berth.yaml"}, "--port", "--address", "--listen", "--bind")
	add([]string{"they are the fields poll and interval of berth.yaml"}, "--interval", "--poll")
	add([]string{"--once", "berth sync --once waits"}, "--wait")
	add([]string{"--timeout", "berth sync --once --timeout bounds the time"}, "--timeout")
	add([]string{"set BERTH_TOKEN, or name its file with --token-file"}, "--token", "--bearer")
	add([]string{"--version"}, "-V")
	add([]string{"name a command, such as berth serve -c berth.yaml"}, "berth -c", "berth --config")
	add([]string{"berth validate DIR checks all documents of an estate together"}, "validate -f", "validate --filename", "validate --file",
		"berth -f")
	add([]string{"an estate is made in a new or empty directory: name another one"}, "init --force", "init -f")
	add([]string{"Berth chooses the node; berth plan shows which"}, "node replace --to", "node replace --node", "node replace --with")
	for _, verb := range []string{"drain", "resume", "cordon", "uncordon", "restart", "replace", "remove", "label"} {
		add([]string{"name one member, such as berth node " + verb + " TENANT.PROJECT/INSTANCE worker-0"}, "node "+verb+" --all",
			"node "+verb+" -a", "node "+verb+" -A")
	}
	add([]string{"an app is checked for all projects of its tenant"}, "onboard check --project", "onboard check -p")
	add([]string{"--cancel-after"}, "node drain --timeout", "node replace --timeout", "node remove --timeout")
	add([]string{"it is as short as it gets: -o json has all fields"}, "status -s", "status --short")
	add([]string{"a plan is not saved: the pull request shows the one that counts"}, "plan --out")
	add([]string{"it prints JSON, a record a line"}, "usage export --format", "usage export --output", "usage export -o",
		"usage export --json")
	addSubmitFlags(add)
	return words
}

// addSubmitFlags adds the options of sbatch and srun.
func addSubmitFlags(add func(instead []string, flags ...string)) {
	add([]string{"it is an option of sbatch: write it as an #SBATCH line of the script"}, "queue submit -w", "queue submit -d",
		"queue submit -a", "queue submit -x",
		"queue submit -C", "queue submit -A", "queue submit -q", "queue submit --nodelist", "queue submit --dependency",
		"queue submit --array",
		"queue submit --exclude", "queue submit --exclusive", "queue submit --constraint", "queue submit --account", "queue submit --qos",
		"queue submit --wrap", "queue submit --chdir", "queue submit --export", "queue submit --mail-type", "queue submit --mail-user")
	for flag, own := range map[string]string{"--partition": "--queue", "-p": "--queue", "-t": "--time", "--mem": "--memory",
		"-J": "--name", "--job-name": "--name",
		"-N": "--nodes", "--ntasks": "--tasks", "-G": "--gpus", "--gres": "--gpus", "--gpus-per-node": "--gpus"} {
		add([]string{own}, flag)
	}
}

// extraArguments has words for an argument too many, by command.
func extraArguments() map[string]string {
	words := map[string]string{
		"status":     "berth describe instance %s shows one instance, and berth status --project TENANT.PROJECT a project",
		"events":     "berth events --instance TENANT.PROJECT/NAME selects an instance, and --correlation ID a change",
		"audit list": "--instance, --project, --actor and --correlation select records",
		"usage":      "berth usage --project TENANT.PROJECT selects a project, and --from and --to days",
		"plan":       "berth plan --base main --head REV plans a branch; a plan covers all instances",
		"sync":       "-c names a berth.yaml; its whole estate is reconciled. With --once, the command then ends",
		"serve":      "-c names a berth.yaml",
		"token":      "--service-account TENANT.PROJECT/NAME names the account",
		"node label": "--label NAME=VALUE gives a label",
		"init":       "give one directory",
	}
	for _, verb := range []string{"drain", "resume", "cordon", "uncordon", "restart", "replace", "remove"} {
		words["node "+verb] = "name one member per command"
	}
	return words
}
