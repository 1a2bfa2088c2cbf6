package profile

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"berth/runtimes"
)

// databaseLogSize is the same at install and at start, else mariadbd rewrites
// its log at the first start.
const databaseLogSize = "16M"

// InstallDBArgs are the arguments of mariadb-install-db: the only ones allowed.
func InstallDBArgs() []string {
	return []string{
		"--no-defaults", "--user=" + DatabaseUser, "--datadir=" + DatabaseData,
		"--skip-test-db", "--auth-root-authentication-method=socket", "--innodb-log-file-size=" + databaseLogSize,
	}
}

// SQLArgs are the arguments of the SQL client, whose statements come on stdin:
// the only ones allowed. --sandbox and --binary-mode refuse the commands of the
// client itself; that is not enough, and CheckStdin knows every statement.
func SQLArgs() []string {
	return []string{"--no-defaults", "--sandbox", "--binary-mode", "--batch", "--skip-column-names", "--user=root", "--socket=" + DatabaseSocket}
}

// SubmitArgs are the arguments that make sbatch submit the script on its stdin,
// with nothing of the environment it runs in. The script may say options too,
// as its owner: it is submitted by its owner's own account.
func SubmitArgs(options ...string) []string {
	return append([]string{"--parsable", "--export=NONE"}, options...)
}

// QueueFormat makes squeue print job id, state and user id, and nothing that a
// user wrote.
const QueueFormat = "--format=%A %t %U"

// JobFormat makes squeue print of a job: id, state, time of submission in
// seconds, nodes and why it waits. No user writes any of these.
const JobFormat = "--format=%A|%T|%V|%N|%r"

var (
	stackConf  = regexp.MustCompile(`^` + EtcDir + `/[a-z][a-z0-9_]{0,39}/slurm\.conf$`)
	anyConf    = regexp.MustCompile(`^(` + EtcDir + `/[a-z][a-z0-9_]{0,39}|` + WorkerConfLink + `)/slurm\.conf$`)
	updateNode = regexp.MustCompile(`^nodename=[a-z0-9][-a-z0-9,]*$`)
	nodeState  = regexp.MustCompile(`^state=(drain|undrain|resume)$`)
	reason     = regexp.MustCompile(`^reason=[ !#%&(-[\]-_a-~]{1,200}$`) // one line, without quotes, $ and backslash
	jobID      = regexp.MustCompile(`^[1-9][0-9]{0,9}$`)
	// optionValue is a value of a submit option: no space, quote, path upwards
	// or control character.
	optionValue = regexp.MustCompile(`^--(job-name|partition|account|qos|gres|nodes|ntasks|cpus-per-task|mem|time|comment|chdir|output|error|constraint|nodelist)=[A-Za-z0-9_./:,%@+-]{1,200}$`)
	queueFilter = regexp.MustCompile(`^--(nodelist|partition|user|jobs)=[A-Za-z0-9_.-]{1,64}$`)
	partition   = regexp.MustCompile(`^partitionname=[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$`)
	userName    = regexp.MustCompile(`^[a-z_][-a-z0-9_]{0,31}$`)
	entity      = regexp.MustCompile(`^[A-Za-z0-9_.,=:/-]+$`)
)

func programs() map[string]runtimes.Program {
	// A configuration says which libraries and programs are loaded, as root: it
	// is one whose content CheckMake has seen, or that slurmd has fetched.
	stacks := map[string]*regexp.Regexp{"SLURM_CONF": stackConf}
	// Times as numbers: else they are in whatever zone the host is set to.
	queueEnv := map[string]*regexp.Regexp{"SLURM_CONF": anyConf, "SLURM_TIME_FORMAT": regexp.MustCompile(`^%s$`)}
	conf := map[string]*regexp.Regexp{"SLURM_CONF": anyConf}
	always := func([]string) bool { return true }
	return map[string]runtimes.Program{
		"scontrol": {Path: "/usr/bin/scontrol", Env: conf, Check: checkScontrol, Reads: first("ping", "show")},
		"sacctmgr": {Path: "/usr/bin/sacctmgr", Env: conf, Check: checkSacctmgr, Reads: sacctmgrReads},
		"sinfo":    {Path: "/usr/bin/sinfo", Env: conf, Check: only("--json"), Reads: always},
		"squeue":   {Path: "/usr/bin/squeue", Env: queueEnv, Check: checkSqueue, Reads: always},
		"sacct":    {Path: "/usr/bin/sacct", Env: conf, Check: checkSacct, Reads: always},
		"sdiag":    {Path: "/usr/bin/sdiag", Env: conf, Check: only(), Reads: always},
		"sbatch":   {Path: "/usr/bin/sbatch", Env: stacks, AsPerson: true, Check: checkSbatch},
		"scancel":  {Path: "/usr/bin/scancel", Env: conf, Check: checkScancel},

		"id": {Path: "/usr/bin/id", Check: checkID, Reads: always},

		"mariadb":            {Path: "/usr/bin/mariadb", Check: exactly(SQLArgs()), CheckStdin: checkSQL},
		"mariadb-install-db": {Path: "/usr/bin/mariadb-install-db", Check: exactly(InstallDBArgs())},
	}
}

// first says whether the first argument is one of words.
func first(words ...string) func([]string) bool {
	return func(args []string) bool { return len(args) > 0 && slices.Contains(words, args[0]) }
}

func exactly(want []string) func([]string) error {
	return func(args []string) error {
		if !slices.Equal(args, want) {
			return fmt.Errorf("other arguments than the one list allowed")
		}
		return nil
	}
}

// only allows any of words.
func only(words ...string) func([]string) error {
	return func(args []string) error {
		for _, a := range args {
			if !slices.Contains(words, a) {
				return fmt.Errorf("argument %q is not allowed", a)
			}
		}
		return nil
	}
}

func checkScontrol(args []string) error {
	if len(args) == 0 {
		return fmt.Errorf("without a command it asks for one")
	}
	rest := args[1:]
	switch args[0] {
	case "ping", "reconfigure":
		if len(rest) == 0 {
			return nil
		}
	case "show":
		if len(rest) == 1 && slices.Contains([]string{"config", "nodes", "partitions"}, rest[0]) ||
			slices.Equal(rest, []string{"assoc_mgr", "flags=assoc"}) {
			return nil
		}
	case "update":
		if len(rest) >= 2 && updateNode.MatchString(rest[0]) && nodeState.MatchString(rest[1]) &&
			(len(rest) == 2 || len(rest) == 3 && reason.MatchString(rest[2])) {
			return nil
		}
		if len(rest) == 2 && partition.MatchString(rest[0]) && rest[1] == "state=inactive" {
			return nil
		}
	case "delete":
		if len(rest) == 1 && updateNode.MatchString(rest[0]) {
			return nil
		}
	}
	return fmt.Errorf("scontrol %s: not one of the forms allowed", strings.Join(args, " "))
}

// checkSqueue allows job lists as JSON, and as text made of words no user has
// a say in: a job's name may hold line breaks and column separators.
func checkSqueue(args []string) error {
	form := false
	for _, a := range args {
		switch {
		case a == "--json" || a == QueueFormat || a == JobFormat:
			form = true
		case a == "--all" || a == "--noheader" || queueFilter.MatchString(a):
		default:
			return fmt.Errorf("argument %q is not allowed", a)
		}
	}
	if !form {
		return fmt.Errorf("want --json or %s", QueueFormat)
	}
	return nil
}

// checkID allows to look people's accounts up, wherever they are kept: the uids
// of some, the groups of one.
func checkID(args []string) error {
	if len(args) < 2 || args[0] != "-u" && (args[0] != "-Gn" || len(args) != 2) {
		return fmt.Errorf("want -u and names, or -Gn and a name")
	}
	for _, name := range args[1:] {
		if !userName.MatchString(name) {
			return fmt.Errorf("%q is no name of a person", name)
		}
	}
	return nil
}

// checkSacctmgr allows what changes and lists accounts. Every call starts with
// -i, as sacctmgr would otherwise wait for a yes; dump and archive, which
// write files, are not allowed.
func checkSacctmgr(args []string) error {
	if len(args) < 3 || args[0] != "-i" {
		return fmt.Errorf("want -i, a command and its words")
	}
	words := args[1:]
	for len(words) > 0 && (words[0] == "-n" || words[0] == "-P") {
		words = words[1:]
	}
	if len(words) < 2 {
		return fmt.Errorf("want a command and its words")
	}
	if words[0] == "load" {
		for _, w := range words[1:] {
			f, isFile := strings.CutPrefix(w, "file=")
			if isFile {
				c, ok := strings.CutPrefix(f, StateDir+"/")
				c, named := strings.CutSuffix(c, "/accounts.cfg")
				if !ok || !named || !cluster.MatchString(c) {
					return fmt.Errorf("load: %q is no file of accounts", f)
				}
			} else if w != "clean" {
				return fmt.Errorf("load: %q is not allowed", w)
			}
		}
		return nil
	}
	if !slices.Contains([]string{"add", "delete", "modify", "list"}, words[0]) {
		return fmt.Errorf("command %q is not allowed", words[0])
	}
	if !slices.Contains([]string{"account", "user", "qos", "assoc", "cluster"}, words[1]) {
		return fmt.Errorf("%s %q is not allowed", words[0], words[1])
	}
	for _, w := range words[2:] {
		if w != "where" && w != "set" && !entity.MatchString(w) {
			return fmt.Errorf("argument %q is not allowed", w)
		}
	}
	return nil
}

// sacctmgrReads says whether the command is list; the flags before it are ours.
func sacctmgrReads(args []string) bool {
	i := slices.IndexFunc(args, func(a string) bool { return !strings.HasPrefix(a, "-") })
	return i >= 0 && args[i] == "list"
}

func checkSacct(args []string) error {
	for _, a := range args {
		id, isJobs := strings.CutPrefix(a, "--jobs=")
		switch {
		case slices.Contains([]string{"--json", "--allusers", "--duplicates"}, a):
		case isJobs && jobID.MatchString(id):
		default:
			return fmt.Errorf("argument %q is not allowed", a)
		}
	}
	return nil
}

// checkSbatch allows a job from stdin, and nothing of the caller's environment.
// Whose it is, says whom sbatch runs as.
func checkSbatch(args []string) error {
	for _, need := range []string{"--parsable", "--export=NONE"} {
		if !slices.Contains(args, need) {
			return fmt.Errorf("%s is missing", need)
		}
	}
	for _, a := range args {
		if a != "--parsable" && a != "--export=NONE" && (!optionValue.MatchString(a) || strings.Contains(a, "..")) {
			return fmt.Errorf("argument %q is not allowed", a)
		}
	}
	return nil
}

func checkScancel(args []string) error {
	if len(args) == 0 {
		return fmt.Errorf("no job is named")
	}
	for _, a := range args {
		if !jobID.MatchString(a) {
			return fmt.Errorf("%q is no job id", a)
		}
	}
	return nil
}
