package profile

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// submitDir has a directory for each script that sbatch reads now.
const submitDir = "/run/berth-submit"

// Script is the script of a submission. Slurm keeps its path, which the owner of the job cannot change: as Command
// at slurmctld, and in SubmitLine at slurmdbd.
type Script struct {
	Cluster     string
	UID         int    // of the owner of the job
	Key, Digest string // idempotency key, and which request has it
	Name        string // of the file, which is that of the job unless an option gives one
}

// Path is where sbatch reads the script.
func (s Script) Path() string {
	return submitDir + "/" + strings.Join([]string{s.Cluster, strconv.Itoa(s.UID), s.Key, s.Digest}, ":") + "/" + s.Name
}

const scriptForm = submitDir +
	`/([a-z][a-z0-9_]{0,39}):([0-9]{1,10}):([A-Za-z0-9._-]{1,64}):([0-9a-f]{16})/([A-Za-z0-9][-A-Za-z0-9_.]{0,63})`

var (
	scripts      = regexp.MustCompile(`^` + scriptForm + `$`)
	scriptAtEnd  = regexp.MustCompile(`^(?:\S*sbatch ` + strings.Join(submitBase, " ") + ` (?:\S+ )*)?` + scriptForm + `$`)
	maxScriptLen = len(Script{Cluster: strings.Repeat("c", 40), UID: 1<<32 - 1, Key: strings.Repeat("k", 64),
		Digest: strings.Repeat("d", 16), Name: strings.Repeat("n", 64)}.Path())
)

// ScriptOf returns the script that Berth gave to sbatch. command is what Slurm keeps: the path of the script at
// slurmctld, and at slurmdbd the line of the submission, which ends with the path.
func ScriptOf(command string) (s Script, ok bool) {
	m := scriptAtEnd.FindStringSubmatch(command)
	if m == nil {
		return Script{}, false
	}
	uid, err := strconv.Atoi(m[2])
	return Script{m[1], uid, m[3], m[4], m[5]}, err == nil
}

// Variables of a job that sbatch reads from a file. It would set SubmitDirectory to the directory that it runs in,
// which is / here. SubmitName is one that 22.05 leaves out if it reads variables.
const (
	SubmitDirectory = "SLURM_SUBMIT_DIR"
	SubmitName      = "SLURM_JOB_NAME"
)

var exported = map[string]*regexp.Regexp{
	SubmitDirectory: regexp.MustCompile(`^(/[A-Za-z0-9_][-A-Za-z0-9_.]*){1,16}$`), SubmitName: regexp.MustCompile(`^[^\x00]{1,1000}$`),
}

// IsJobName reports whether berth-host exports a name of a job.
func IsJobName(name string) bool { return exported[SubmitName].MatchString(name) }

// submitBase are arguments of each submission. The job gets its user's environment of a login on its node, and none
// of sbatch's, which has none here; with --export=NONE the steps of the job would get none either. sbatch opens the file of variables once
// for each part of a heterogeneous job.
var submitBase = []string{"--parsable", "--get-user-env", "--export-file=/proc/self/fd/3"}

// SubmitArgs returns the arguments with which sbatch submits a script. The script may contain options, as sbatch
// runs as the job's owner.
func SubmitArgs(options ...string) []string { return append(slices.Clone(submitBase), options...) }

// ExportAll replaces the --export of a script.
const ExportAll = "--export=ALL"

// submitOption matches an option without spaces, quotes and control characters.
var submitOption = compile(
	`^--(job-name|partition|account|qos|gres|nodes|ntasks|cpus-per-task|` +
		`mem|time|comment|chdir|output|error|constraint|nodelist)=[A-Za-z0-9_./:,%@+-]{1,200}$`,
)

// IsSubmitOption reports whether berth-host lets sbatch have an option.
func IsSubmitOption(option string) bool {
	return option == ExportAll || submitOption.MatchString(option) && !parentDirectory.MatchString(option)
}

// checkSbatch allows a job with the environment of its user. Its owner is the user that sbatch runs as.
func checkSbatch(args []string) error {
	n := len(submitBase)
	if len(args) < n || !slices.Equal(args[:n], submitBase) {
		return fmt.Errorf("sbatch: the first arguments are not %s", strings.Join(submitBase, " "))
	}
	for _, a := range args[n:] {
		if !IsSubmitOption(a) {
			return fmt.Errorf("argument %q is not allowed", a)
		}
	}
	return nil
}
