package profile

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"berth/runtimes"
)

// databaseLogSize is the same for install and start, as mariadbd would otherwise
// rewrite its log at the first start.
const databaseLogSize = "16M"

// InstallDBArgs returns the only allowed arguments of mariadb-install-db.
func InstallDBArgs() []string {
	return []string{
		"--no-defaults", "--user=" + DatabaseUser, "--datadir=" + DatabaseData,
		"--skip-test-db", "--auth-root-authentication-method=socket", "--innodb-log-file-size=" + databaseLogSize,
	}
}

// SQLArgs returns the only allowed arguments of the SQL client, which reads
// statements from stdin. --sandbox and --binary-mode disable most commands of the
// client itself; CheckStdin compares the statements as well.
func SQLArgs() []string {
	return []string{"--no-defaults", "--sandbox", "--binary-mode", "--batch", "--skip-column-names", "--user=root",
		"--socket=" + DatabaseSocket}
}

// RunawayArgs returns the arguments with which sacctmgr lists the jobs of a cluster that
// are active in the accounting database and unknown to slurmctld. With fix it ends
// them there. Without, it asks a question, which RunawayAnswer declines: at the end of
// its input it would ask forever.
func RunawayArgs(cluster string, fix bool) []string {
	args := []string{"-P", "show", "runaway", "cluster=" + cluster, "format=ID"}
	if fix {
		return append([]string{"-i"}, args...)
	}
	return args
}

// LostComment is the AdminComment of a job that slurmctld lost in a crash and that Berth ended in the accounting database.
// Accounting has such a job as COMPLETED. Only an administrator can write an AdminComment.
const LostComment = "berth:lost"

// LostArgs returns the arguments with which sacctmgr marks jobs of a cluster as lost.
func LostArgs(cluster string, ids ...int) []string {
	words := make([]string, len(ids))
	for i, id := range ids {
		words[i] = strconv.Itoa(id)
	}
	return []string{"-i", "modify", "job", "where", "cluster=" + cluster, "jobid=" + strings.Join(words, ","), "set",
		"admincomment=" + LostComment}
}

// RunawayAnswer is the only input of sacctmgr.
const RunawayAnswer = "n\n"

// QueueFormat makes squeue print job id, state, user id and partitions, and no text of a
// user. A pending job has all partitions that it was submitted to, another one the
// partition where it runs.
const QueueFormat = "--format=%i %t %U %P"

// SnapshotFormat makes squeue print what a plan needs of each job. Slurm makes all of it: of
// --gres, which a user writes, it prints the resources that it understood, and of --nodelist the
// nodes, which it knows. The features of --constraint are the last column, as their operator | separates columns. Times are seconds if
// SLURM_TIME_FORMAT is %s.
const SnapshotFormat = "--Format=JobArrayID:|,JobID:|,StateCompact:|,UserName:|,Account:|,QOS:|,Partition:|,NodeList:|," +
	"tres-alloc:|,StartTime:|,TimeLimit:|,ReqNodes:|,Reason:|,MinCpus:|,MinMemory:|,tres-per-node:|,Feature:|"

// QueuedStates and ExcludedFormat make squeue print the nodes that waiting jobs exclude, which SnapshotFormat cannot name.
const (
	QueuedStates   = "--states=PD"
	ExcludedFormat = "--format=%A %x"
)

// EndedStates and EndedFormat make squeue print which jobs have ended, and when and where they ran.
const (
	EndedStates = "--states=CG,BF,CA,CD,DL,F,NF,OOM,PR,TO"
	EndedFormat = "--Format=JobID:|,EndTime:|,NodeList:|"
)

// jsonParser asks for the version of JSON that Slurm 24.11 and 26.05 both have.
const jsonParser = "--json=v0.0.42"

// JobFormat makes squeue print id, state, submission time in seconds, nodes and the
// reason for waiting. No user writes any of these.
const JobFormat = "--format=%A|%T|%V|%N|%r"

// ReservationPrefix begins the names of the reservations that Berth makes.
const ReservationPrefix = "berth-"

const reservationName = ReservationPrefix + `[a-z][-_0-9a-z]{0,31}`

// errNotAllowed refuses arguments that Berth never sends.
var errNotAllowed = errors.New("these arguments are not allowed")

var (
	stackConf  = regexp.MustCompile(`^` + EtcDir + `/[a-z][a-z0-9_]{0,39}/slurm\.conf$`)
	anyConf    = regexp.MustCompile(`^(` + EtcDir + `/[a-z][a-z0-9_]{0,39}|` + WorkerConfLink + `)/slurm\.conf$`)
	updateNode = compile(`^nodename=` + nodeListForm + `$`)
	nodeState  = compile(`^state=(drain|undrain|resume)$`)
	reason     = compile(`^reason=[ !#%&(-[\]-_a-~]{1,200}$`) // one line, without quotes, $ and backslash
	// nodeComment has the labels of a node, with the mark of Berth.
	nodeComment     = compile(`^comment=berth:[-._+,=A-Za-z0-9]+$`)
	jobIDs          = compile(`^[1-9][0-9]{0,9}(,[1-9][0-9]{0,9})*$`)
	jobID           = compile(`^[1-9][0-9]{0,9}([_+][0-9]{1,9})?$`) // of a job, a task of an array, a part of a heterogeneous job
	parentDirectory = compile(`[=/]\.\.(/|$)`)

	queueFilter = compile(`^--(nodelist|partition|user|account|qos|jobs)=[A-Za-z0-9_.-]{1,128}$`)
	partition   = compile(`^partitionname=[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$`)
	updateJob   = compile(`^jobid=[1-9][0-9]{0,9}([_+][0-9]{1,9}|_\[[0-9,:-]{1,100}\])?$`)
	// jobPartitions are the partitions of a pending job.
	jobPartitions = compile(`^partition=[A-Za-z0-9][A-Za-z0-9_.,-]*$`)
	jobQoS        = compile(`^qos=[a-z0-9][-a-z0-9_.]{0,127}$`)
	// reservation is a reservation of Berth. Without a start, it has begun.
	reservation     = compile(`^reservationname=` + reservationName + `$`)
	reservationArgs = compile(`^reservation reservationname=` + reservationName + `( starttime=(now|uts[1-9][0-9]{8,10}))?` +
		` endtime=uts[1-9][0-9]{8,10} nodes=` + nodeListForm + ` users=root flags=MAINT,IGNORE_JOBS$`)
	runsOption  = compile(`^--(format=[A-Za-z,]+|(starttime|endtime)=uts[0-9]{1,12}|accounts=[a-z0-9][-a-z0-9_.]{0,127})$`)
	usageReport = compile(`^--noheader --parsable2 -t Seconds (-T cpu,gres/gpu cluster Utilization|cluster AccountUtilizationByUser)` +
		` clusters=[a-z][a-z0-9_]{0,39}` +
		` format=(TresName,Reported,Allocated,Down,PlannedDown|Account,Login,Used) start=uts[0-9]{1,12} end=uts[0-9]{1,12}$`)
	userName = compile(`^` + userForm + `$`)
)

func programs() map[string]runtimes.Program {
	// A configuration names libraries and programs that root loads. CheckMake has
	// checked its content, or slurmd has fetched it from the controller.
	stacks := map[string]*regexp.Regexp{"SLURM_CONF": stackConf}
	// Times as numbers, independent of the host's time zone, and lists of an array's tasks as a whole.
	queueEnv := map[string]*regexp.Regexp{"SLURM_CONF": anyConf, "SLURM_TIME_FORMAT": regexp.MustCompile(`^%s$`),
		"SLURM_BITSTR_LEN": regexp.MustCompile(`^0$`)}
	conf := map[string]*regexp.Regexp{"SLURM_CONF": anyConf}
	always := func([]string) bool { return true }
	all := map[string]runtimes.Program{
		"scontrol": {Path: "/usr/bin/scontrol", Env: queueEnv, Check: checkScontrol, Reads: first("ping", "show")},
		"sacctmgr": {Path: "/usr/bin/sacctmgr", Env: conf, Check: checkSacctmgr, CheckStdin: checkAnswer, Reads: sacctmgrReads,
			ReadsStdin: true},
		// Both print their version, and slurmd the host's resources, whatever their
		// configuration is.
		"slurmctld": {Path: "/usr/sbin/slurmctld", Check: exactly([]string{"-V"}), Reads: always},
		"slurmd":    {Path: "/usr/sbin/slurmd", Check: oneOf("-V", "-C"), Reads: always},
		"sinfo":     {Path: "/usr/bin/sinfo", Env: conf, Check: only("--json"), Reads: always},
		"squeue":    {Path: "/usr/bin/squeue", Env: queueEnv, Check: checkSqueue, Reads: always},
		"sacct":     {Path: "/usr/bin/sacct", Env: queueEnv, Check: checkSacct, Reads: always},
		"sreport":   {Path: "/usr/bin/sreport", Env: conf, Check: checkSreport, Reads: always},
		"sbatch":    {Path: "/usr/bin/sbatch", Env: stacks, AsPerson: true, Check: checkSbatch, Scripts: scripts, Export: exported},
		"scancel":   {Path: "/usr/bin/scancel", Env: conf, Check: checkScancel},
		"find":      {Path: "/usr/bin/find", AsPerson: true, Check: checkSize},
		"dd":        {Path: "/usr/bin/dd", AsPerson: true, Check: checkRead},

		"sdiag": {Path: "/usr/bin/sdiag", Env: conf, Check: exactly(nil), Reads: always},
		"id":    {Path: "/usr/bin/id", Check: checkID, Reads: always},

		"munge":              {Path: "/usr/bin/munge", Check: checkMunge, Reads: always},
		"mariadb":            {Path: "/usr/bin/mariadb", Check: checkClient, CheckStdin: checkSQL, StdinFiles: dumps, Reads: triesToWrite},
		"mariadb-dump":       {Path: "/usr/bin/mariadb-dump", Check: backupArgs(Backup.DumpArgs)},
		"tar":                {Path: "/usr/bin/tar", Check: backupArgs(Backup.ArchiveArgs, Backup.ListArchiveArgs)},
		"mariadb-install-db": {Path: "/usr/bin/mariadb-install-db", Check: exactly(InstallDBArgs())},
	}
	for name, p := range all { // Slurm's tools wait 60 s for a slurm.conf that is missing
		if p.Env["SLURM_CONF"] != nil {
			p.Config = "SLURM_CONF"
			all[name] = p
		}
	}
	return all
}

// MungeArgs returns the arguments with which munge makes a credential, for a test of munged,
// and keeps none.
func MungeArgs(socket string) []string {
	return []string{"--no-input", "--output=/dev/null", "--socket=" + socket}
}

var mungeSocket = compile(`^--socket=(/run/munge(?:-[a-z][a-z0-9_]{0,39})?/munge\.socket\.2)$`)

func checkMunge(args []string) error {
	if len(args) == 3 {
		if m := mungeSocket.FindStringSubmatch(args[2]); m != nil && slices.Equal(args, MungeArgs(m[1])) {
			return nil
		}
	}
	return fmt.Errorf("these arguments of munge are not allowed")
}

// first reports whether the first argument is one of words.
func first(words ...string) func([]string) bool {
	return func(args []string) bool { return len(args) > 0 && slices.Contains(words, args[0]) }
}

func exactly(want []string) func([]string) error {
	return func(args []string) error {
		if !slices.Equal(args, want) {
			return fmt.Errorf("arguments differ from the only allowed list")
		}
		return nil
	}
}

// oneOf allows exactly one of words.
func oneOf(words ...string) func([]string) error {
	return func(args []string) error {
		if len(args) != 1 || !slices.Contains(words, args[0]) {
			return fmt.Errorf("want one of %s", strings.Join(words, ", "))
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

// checkScontrol allows the forms of scontrolForms.
func checkScontrol(args []string) error {
	if len(args) == 0 {
		return fmt.Errorf("scontrol needs a command, as it otherwise reads stdin")
	}
	rest := args[1:]
	if slices.ContainsFunc(scontrolForms(args[0]), func(matches func([]string) bool) bool { return matches(rest) }) {
		return nil
	}
	return fmt.Errorf("scontrol %s: not one of the allowed forms", strings.Join(args, " "))
}

// scontrolForms returns the forms of the arguments that a command of scontrol may have.
func scontrolForms(command string) []func(args []string) bool {
	words := func(want ...string) func([]string) bool {
		return func(args []string) bool { return slices.Equal(args, want) }
	}
	one := func(is func(string) bool) func([]string) bool {
		return func(args []string) bool { return len(args) == 1 && is(args[0]) }
	}
	two := func(is, also func(string) bool) func([]string) bool {
		return func(args []string) bool { return len(args) == 2 && is(args[0]) && also(args[1]) }
	}
	switch command {
	case "ping", "reconfigure":
		return []func([]string) bool{words()}
	case "show":
		return []func([]string) bool{words("config"), words("nodes"), words("partitions"), words("assoc_mgr", "flags=assoc"),
			words("assoc_mgr", "flags=qos"), words("nodes", jsonParser), words("reservations", "--oneliner")}
	case "update":
		return []func([]string) bool{
			two(isNodes, nodeState.MatchString), two(isNodes, nodeComment.MatchString),
			func(args []string) bool {
				return len(args) == 3 && isNodes(args[0]) && nodeState.MatchString(args[1]) && reason.MatchString(args[2])
			},
			two(partition.MatchString, func(arg string) bool { return arg == "state=inactive" }),
			two(updateJob.MatchString, jobPartitions.MatchString), two(updateJob.MatchString, jobQoS.MatchString), isReservation,
		}
	case "create":
		return []func([]string) bool{isReservation}
	case "delete":
		return []func([]string) bool{one(partition.MatchString), one(reservation.MatchString)}
	}
	return nil
}

// isReservation reports whether arguments are those of a reservation of Berth for the
// maintenance of nodes, which only root may use.
func isReservation(args []string) bool {
	return reservationArgs.MatchString(strings.Join(args, " ")) && !slices.ContainsFunc(args, namesAll)
}

// isNodes reports whether an argument of scontrol names nodes, each by its name.
func isNodes(arg string) bool {
	return updateNode.MatchString(arg) && !namesAll(arg)
}

// namesAll reports whether an argument lists a word that means all nodes.
func namesAll(arg string) bool {
	_, list, _ := strings.Cut(arg, "=")
	return slices.ContainsFunc(strings.Split(list, ","), func(name string) bool {
		return strings.EqualFold(name, "all") || strings.EqualFold(name, "default")
	})
}

// checkSqueue allows lists of jobs as JSON, and as text without fields that users
// write: the name of a job may contain line breaks and column separators.
func checkSqueue(args []string) error {
	if isQueueJobs(args) {
		return nil
	}
	form := false
	for _, a := range args {
		switch {
		case slices.Contains([]string{"--json", jsonParser, QueueFormat, SnapshotFormat, ExcludedFormat, EndedFormat, JobFormat}, a):
			form = true
		case a == "--all" || a == "--array" || a == "--noheader" || a == EndedStates || a == QueuedStates || queueFilter.MatchString(a):
		default:
			return fmt.Errorf("argument %q is not allowed", a)
		}
	}
	if !form {
		return fmt.Errorf("want --json or %s", QueueFormat)
	}
	return nil
}

// checkID allows looking up the uids of users and the groups of one user.
func checkID(args []string) error {
	if len(args) < 2 || args[0] != "-u" && (args[0] != "-Gn" || len(args) != 2) {
		return fmt.Errorf("want -u and names, or -Gn and a name")
	}
	for _, name := range args[1:] {
		if !IsUser(name) {
			return fmt.Errorf("%q is not a user name", name)
		}
	}
	return nil
}

// checkSacctmgr allows to list and to change the accounting. Every call starts with -i, as
// sacctmgr would otherwise wait for a confirmation. It completes abbreviated words, so each
// word is spelled out. Nobody becomes an administrator: the file of accounts
// makes root one.
func checkSacctmgr(args []string) error {
	if isRunaway(args, false) || isRunaway(args, true) {
		return nil
	}
	if len(args) < 3 || args[0] != "-i" {
		return fmt.Errorf("want -i, a command and its words")
	}
	if args[1] == "load" {
		return checkLoad(args[2:])
	}
	for _, a := range args {
		if strings.ContainsAny(a, " \n") {
			return fmt.Errorf("argument %q is not allowed", a)
		}
	}
	line := strings.TrimPrefix(strings.TrimPrefix(strings.Join(args[1:], " "), "-n "), "-P ")
	for _, form := range accountingForms {
		m := form.FindStringSubmatch(line)
		if m == nil {
			continue
		}
		if i := form.SubexpIndex("names"); i > 0 &&
			slices.ContainsFunc(strings.Split(m[i], ","), func(n string) bool { return strings.EqualFold(n, "root") }) {
			return fmt.Errorf("root is not changed")
		}
		return nil
	}
	return fmt.Errorf("sacctmgr %s: not one of the allowed forms", line)
}

// accountingForms are the calls of sacctmgr, without -i. None of the names may be root.
var accountingForms = func() []*expression {
	const (
		name      = recordForm
		names     = `(?P<names>` + name + `(?:,` + name + `)*)`
		inCluster = ` cluster=[a-z][a-z0-9_]{0,39}`
		place     = `(?: account=` + name + `)?` + inCluster
		value     = `[A-Za-z0-9_.,=/:-]*`
		columns   = ` format=[a-z,]+`
	)
	values := func(keys string) string { return `(?: (?:` + keys + `)=` + value + `)` }
	set := func(keys string) string { return ` set` + values(keys) + `+` }
	limits := `(?:grp|max)(?:jobs|submitjobs|jobsaccrue|tres)|grptresmins|grptresrunmins|grpwall|` +
		`maxtresperjob|maxtrespernode|maxtresminsperjob|minpriothresh|priority`
	ofAssociation := limits + `|fairshare|qos|defaultqos|maxwalldurationperjob`
	ofQoS := limits + `|gracetime|preempt|preemptmode|preemptexempttime|flags|usagethres|usagefactor|limitfactor|maxwall|mintresperjob|` +
		`maxtresrunminspu|max(?:tres|jobs|jobsaccrue|submitjobs)per(?:user|account)`
	association := set(ofAssociation + `|parent`)
	var all []*expression
	for _, form := range []string{
		`list cluster` + columns, `list qos` + columns, `list user withcoord` + columns, `list assoc` + inCluster + ` wopl` + columns,
		`add qos ` + names + values(ofQoS) + `*`,
		`modify qos where name=` + names + set(ofQoS),
		`delete qos where name=` + names,
		`add account ` + names + inCluster + ` parent=` + name + ` description=` + name + ` organization=berth` + values(ofAssociation) +
			`*`,
		`modify account where name=` + name + inCluster + association,
		`delete account where name=` + names + `(?:` + inCluster + `)?`,
		`add user ` + names + ` account=` + name + inCluster + `(?: defaultaccount=` + name + `)?`,
		`modify user where name=` + names + place + association,
		`modify user where name=` + names + inCluster + ` set defaultaccount=` + name,
		`modify user where name=` + names + ` set adminlevel=None`,
		`delete user where name=` + names + place,
		`modify job where` + inCluster + ` jobid=[0-9]{1,10}(?:,[0-9]{1,10})* set admincomment=` + LostComment,
		`delete coordinator where name=` + names + ` account=` + name,
	} {
		all = append(all, compile(`^`+form+`$`))
	}
	return all
}()

// checkLoad allows to load the file of accounts of a stack.
func checkLoad(words []string) error {
	for _, w := range words {
		f, isFile := strings.CutPrefix(w, "file=")
		if isFile {
			c, ok := strings.CutPrefix(f, StateDir+"/")
			c, named := strings.CutSuffix(c, "/accounts.cfg")
			if !ok || !named || !cluster.MatchString(c) {
				return fmt.Errorf("load: %q is not a file of accounts", f)
			}
		} else if w != "clean" {
			return fmt.Errorf("load: %q is not allowed", w)
		}
	}
	return nil
}

// isRunaway reports whether args are RunawayArgs of a cluster.
func isRunaway(args []string, fix bool) bool {
	i := slices.IndexFunc(args, func(a string) bool { return strings.HasPrefix(a, "cluster=") })
	if i < 0 {
		return false
	}
	name := strings.TrimPrefix(args[i], "cluster=")
	return cluster.MatchString(name) && slices.Equal(args, RunawayArgs(name, fix))
}

// checkAnswer allows to decline the question of sacctmgr.
func checkAnswer(stdin []byte) error {
	if len(stdin) > 0 && string(stdin) != RunawayAnswer {
		return fmt.Errorf("input other than %q is not allowed", RunawayAnswer)
	}
	return nil
}

// sacctmgrReads reports whether the command only lists.
func sacctmgrReads(args []string) bool {
	if isRunaway(args, false) {
		return true
	}
	i := slices.IndexFunc(args, func(a string) bool { return !strings.HasPrefix(a, "-") })
	return i >= 0 && args[i] == "list"
}

func checkSacct(args []string) error {
	if isAccountedJobs(args) {
		return nil
	}
	for _, a := range args {
		id, isJobs := strings.CutPrefix(a, "--jobs=")
		switch {
		case slices.Contains([]string{"--json", jsonParser, "--allusers", "--duplicates", "--allocations", "--noconvert", "--parsable2",
			"--truncate"}, a):
		case isJobs && (jobID.MatchString(id) || jobIDs.MatchString(id)), runsOption.MatchString(a):
		default:
			return fmt.Errorf("argument %q is not allowed", a)
		}
	}
	return nil
}

// checkSreport allows the reports of one cluster's CPUs and GPUs, and of the charges of its accounts.
func checkSreport(args []string) error {
	if line := strings.Join(args, " "); !usageReport.MatchString(line) {
		return fmt.Errorf("sreport %s: not one of the allowed forms", line)
	}
	return nil
}

// CancelPending makes scancel leave alone what runs.
const CancelPending = "--state=PENDING"

func checkScancel(args []string) error {
	if cancelOwned.MatchString(strings.Join(args, " ")) {
		return nil
	}
	if len(args) > 0 && args[0] == CancelPending {
		args = args[1:]
	}
	if len(args) == 0 {
		return fmt.Errorf("want a job id")
	}
	for _, a := range args {
		if !jobID.MatchString(a) {
			return fmt.Errorf("%q is not a job id", a)
		}
	}
	return nil
}
