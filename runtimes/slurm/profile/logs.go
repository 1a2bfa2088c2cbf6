package profile

import "fmt"

// Log files grow until logrotate renames them. The distribution's rules name other files and
// signal services that do not run.

// rotationDir is read by logrotate(8).
const rotationDir = "/etc/logrotate.d"

// WorkerLogRotation is the file that tells logrotate the logs of a worker.
const WorkerLogRotation = rotationDir + "/berth-slurmd"

// WorkerOldLogs is the directory of a worker's old logs.
const WorkerOldLogs = LogDir + "/berth-slurmd"

// LogRotation is the file that tells logrotate the logs of the stack.
func (s Stack) LogRotation() string { return rotationDir + "/berth-" + s.Cluster }

// LogRules returns the content of LogRotation. Daemons of Slurm reopen their logs at SIGUSR2
// (slurmctld(8), slurmdbd(8)); the signal goes to a process of their account only. munged
// writes too little to rotate.
func (s Stack) LogRules() []byte {
	return rule(s.Log()+"/*.log", SlurmUser, "", reopen(SlurmUser, s.Run()+"/slurmctld.pid")+reopen(SlurmUser, s.Run()+"/slurmdbd.pid"))
}

// WorkerLogRules returns the content of WorkerLogRotation.
func WorkerLogRules() []byte {
	return rule(WorkerLog, "root", "\tolddir "+WorkerOldLogs+"\n", reopen("root", WorkerPID))
}

// rule keeps twelve old files of logs that belong to a user.
func rule(logs, user, where, reopen string) []byte {
	return fmt.Appendf(nil, "%s {\n\tsu %s %[2]s\n%s\tweekly\n\tmaxsize 100M\n\trotate "+
		"12\n\tcompress\n\tdelaycompress\n\tmissingok\n\tnotifempty\n\tnocreate\n"+
		"\tsharedscripts\n\tpostrotate\n%s\tendscript\n}\n", logs, user, where, reopen)
}

func reopen(user, pidFile string) string {
	return "\t\tpkill -USR2 --uid " + user + " --pidfile " + pidFile + " || true\n"
}
