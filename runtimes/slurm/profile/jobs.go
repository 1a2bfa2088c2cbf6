package profile

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// The columns of jobs in squeue and in sacct, in the same order; the last one of sacct has no counterpart.
const (
	queueColumns = "JobArrayID,State,UserName,Account,Partition,SubmitTime,StartTime,EndTime,TimeLimit,NodeList,tres-alloc," +
		"exit_code,Reason,Name,Command,JobID"
	accountColumns = "JobID,State,User,Account,Partition,Submit,Start,End,TimelimitRaw,NodeList,AllocTRES," +
		"ExitCode,Reason,JobName,SubmitLine,JobIDRaw,AdminComment"
	// Where a job wrote, which can be long: it is asked for one job.
	queueFileColumns   = "JobArrayID,SubmitTime,STDOUT,WorkDir"
	accountFileColumns = "JobID,Submit,SubmitLine,WorkDir"
)

// maxName is how much of the name of a job is read, in bytes.
const maxName = 128

// separator ends each value. It is random in each call, as users write names, commands and paths of jobs.
var separator = compile(`^[a-z][a-z0-9]{7,15}$`)

// QueueJobsArgs returns the arguments with which squeue prints jobs, each value followed by a separator that the
// caller makes at random. Text of users has a fixed width: padded with blanks or cut off.
func QueueJobsArgs(separator string, filter ...string) []string {
	width := map[string]string{"Name": strconv.Itoa(maxName), "Command": strconv.Itoa(maxScriptLen + 1)} // a longer path is not Berth's
	var format []string
	for _, column := range strings.Split(queueColumns, ",") {
		format = append(format, column+":"+width[column]+separator)
	}
	return append([]string{"--noheader", "--all", "--noconvert", "--states=all", "--Format=" + strings.Join(format, ",")}, filter...)
}

// AccountedJobsArgs returns the arguments with which sacct prints jobs in the same way. It has no width.
func AccountedJobsArgs(separator string, filter ...string) []string {
	return sacctArgs(separator, accountColumns, filter)
}

// QueueFilesArgs returns the arguments with which squeue prints where jobs write.
func QueueFilesArgs(separator string, filter ...string) []string {
	return append([]string{"--noheader", "--all", "--noconvert", "--states=all",
		"--Format=" + strings.ReplaceAll(queueFileColumns, ",", ":"+separator+",") + ":" + separator}, filter...)
}

// AccountedFilesArgs returns the arguments with which sacct prints how jobs were submitted, and where they ran.
func AccountedFilesArgs(separator string, filter ...string) []string {
	return sacctArgs(separator, accountFileColumns, filter)
}

func sacctArgs(separator, columns string, filter []string) []string {
	return append([]string{"--noheader", "--allusers", "--duplicates", "--allocations", "--noconvert", "--parsable",
		"--delimiter=" + separator, "--format=" + columns}, filter...)
}

// QueueIDsArgs and AccountedIDsArgs return the arguments with which squeue and sacct print only the ids of jobs.
func QueueIDsArgs(filter ...string) []string {
	return append([]string{"--noheader", "--all", "--states=all", "--format=%A"}, filter...)
}

// AccountedIDsArgs: see QueueIDsArgs.
func AccountedIDsArgs(filter ...string) []string {
	return append([]string{"--noheader", "--allusers", "--allocations", "--parsable2", "--format=JobID"}, filter...)
}

// jobsQuery reports whether args are those of base with a separator, followed by filters.
func jobsQuery(args []string, base func(string, ...string) []string, at int, filter *expression) bool {
	n := len(base(""))
	if len(args) < n {
		return false
	}
	_, s, _ := strings.Cut(args[at], strings.SplitN(base("")[at], ",", 2)[0])
	s, _, _ = strings.Cut(s, ",")
	return separator.MatchString(s) && startsWith(args, base(s), filter)
}

// startsWith reports whether args are those of base, followed by filters.
func startsWith(args, base []string, filter *expression) bool {
	n := len(base)
	return len(args) >= n && slices.Equal(args[:n], base) &&
		!slices.ContainsFunc(args[n:], func(a string) bool { return !filter.MatchString(a) })
}

const oneOrMore = `jobs=[1-9][0-9]{0,9}(_[0-9]{1,7})?(,[1-9][0-9]{0,9}(_[0-9]{1,7})?)*`

var (
	queueJobsFilter     = compile(`^--(user=` + userForm + `|account=[a-z0-9][-a-z0-9_.]{0,127}|` + oneOrMore + `)$`)
	accountedJobsFilter = compile(`^--(user=` + userForm + `|accounts=[a-z0-9][-a-z0-9_.]{0,127}|` + oneOrMore +
		`|starttime=uts[0-9]{1,12})$`)
)

func isQueueJobs(args []string) bool {
	return jobsQuery(args, QueueJobsArgs, 4, queueJobsFilter) || jobsQuery(args, QueueFilesArgs, 4, queueJobsFilter) ||
		startsWith(args, QueueIDsArgs(), queueJobsFilter)
}

func isAccountedJobs(args []string) bool {
	return jobsQuery(args, AccountedJobsArgs, 6, accountedJobsFilter) || jobsQuery(args, AccountedFilesArgs, 6, accountedJobsFilter) ||
		startsWith(args, AccountedIDsArgs(), accountedJobsFilter)
}

// CancelArgs returns the arguments with which scancel ends a job if it is the user's and, unless
// account is empty, of the account. A task of an array is ended by its id alone, so the caller makes sure
// that it is of the account: with a filter, scancel of 22.05 ends all tasks of the array that wait.
func CancelArgs(id, user, account string) []string {
	if strings.Contains(id, "_") {
		return []string{id}
	}
	args := []string{"--user=" + user}
	if account != "" {
		args = append(args, "--account="+account)
	}
	return append(args, id)
}

var cancelOwned = compile(`^--user=` + userForm + `( --account=[a-z0-9][-a-z0-9_.]{0,127})? [1-9][0-9]{0,9}$`)

// Both programs run as the owner of a job. Another user may be able to write to the directory of its output, and
// replace the output by a link to a private file of the owner. So neither program follows a link.

// SizeArgs returns the arguments with which find prints the size of a regular file in bytes, if it
// belongs to uid.
func SizeArgs(path string, uid int) []string {
	return []string{"-P", path, "-maxdepth", "0", "-type", "f", "-uid", strconv.Itoa(uid), "-printf", "%s"}
}

// ReadArgs returns the arguments with which dd prints a part of a file.
func ReadArgs(path string, skip, bytes int64) []string {
	return []string{"if=" + path, "iflag=nofollow,nonblock,fullblock,skip_bytes,count_bytes", "status=none", "bs=64K",
		fmt.Sprintf("skip=%d", skip), fmt.Sprintf("count=%d", bytes)}
}

var (
	outputFile = compile(`^/[^\x00-\x1f\x7f]{1,500}$`)
	readRange  = compile(`^skip=[0-9]{1,15} count=[0-9]{1,7}$`)
)

// IsOutputFile reports whether berth-host reads a path of an output.
func IsOutputFile(path string) bool {
	return utf8.ValidString(path) && outputFile.MatchString(path) && !strings.Contains(path+"/", "/../")
}

func checkSize(args []string) error {
	if len(args) < 8 || !IsOutputFile(args[1]) {
		return errNotAllowed
	}
	if uid, err := strconv.Atoi(args[7]); err != nil || !slices.Equal(args, SizeArgs(args[1], uid)) {
		return errNotAllowed
	}
	return nil
}

func checkRead(args []string) error {
	if len(args) != 6 || !readRange.MatchString(args[4]+" "+args[5]) {
		return errNotAllowed
	}
	path, isInput := strings.CutPrefix(args[0], "if=")
	if !isInput || !IsOutputFile(path) || !slices.Equal(args[:4], ReadArgs(path, 0, 0)[:4]) {
		return errNotAllowed
	}
	return nil
}
