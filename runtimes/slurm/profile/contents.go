package profile

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"strings"

	"berth/runtimes"
)

// The files and directories that may be made on a host, and their content. Slurm's
// configuration names programs and libraries that daemons and tools run as root.
// So each line of a file has to be a key of the list with a value of its form.

// made is a kind of file or directory that the runtime makes.
type made struct {
	kind  string
	path  *regexp.Regexp // its first group, if any, is the cluster
	mode  uint32
	owner string
	check func(s Stack, data []byte) error // of a file
}

const clusterGroup = `([a-z][a-z0-9_]{0,39})`

// everything lists all that the runtime makes.
func everything() []made {
	at := func(pattern string) *regexp.Regexp { return regexp.MustCompile(`^` + pattern + `$`) }
	dir := func(mode uint32, owner string, patterns ...string) made {
		return made{kind: "dir", path: at(`(?:` + strings.Join(patterns, `|`) + `)`), mode: mode, owner: owner}
	}
	return []made{
		dir(0o755, "", InstanceDir, EtcDir, EtcDir+`/[a-z][a-z0-9_]{0,39}`, WorkerSpoolDir),
		dir(0o755, SlurmUser, StateDir, StateDir+`/[a-z][a-z0-9_]{0,39}`, LogDir, LogDir+`/[a-z][a-z0-9_]{0,39}`),
		dir(0o700, SlurmUser, StateDir+`/[a-z][a-z0-9_]{0,39}/state`),
		dir(0o700, MungeUser, MungeEtc, MungeLog),
		dir(0o711, MungeUser, MungeLib),
		dir(0o755, DatabaseUser, DatabaseDir),
		dir(0o700, DatabaseUser, DatabaseData),
		{"secret", at(MungeEtc + `/` + clusterGroup + `\.key`), 0o400, MungeUser, nil},
		{"file", at(WorkerMungeKey), 0o400, MungeUser, anything},
		{"file", at(InstanceDir + `/[a-z][a-z0-9_]{0,39}\.json`), 0o600, "", isJSON},
		{"file", at(DatabaseInstalled), 0o644, "", anything},
		{"file", at(EtcDir + `/` + clusterGroup + `/slurm\.conf`), 0o644, "", checkSlurmConf},
		// No program reads it, and a person may have written it.
		{"file", at(EtcDir + `/` + clusterGroup + `/slurm\.conf\.previous`), 0o644, "", anything},
		{"file", at(EtcDir + `/` + clusterGroup + `/gres\.conf`), 0o644, "", eachLine(gresLine)},
		{"file", at(EtcDir + `/` + clusterGroup + `/cgroup\.conf`), 0o644, "", eachLine(regexp.MustCompile(`^CgroupPlugin=autodetect$`))},
		{"file", at(EtcDir + `/` + clusterGroup + `/plugstack\.conf`), 0o644, "", eachLine(nil)},
		{"file", at(EtcDir + `/` + clusterGroup + `/slurmdbd\.conf`), 0o600, SlurmUser, checkSlurmdbdConf},
		{"file", at(StateDir + `/` + clusterGroup + `/accounts\.cfg`), 0o600, "", checkAccounts},
	}
}

// checkMake refuses everything that is not in the list. Links belong to services and
// are not in it.
func checkMake(list []made) func(runtimes.Making) error {
	return func(m runtimes.Making) error {
		for _, one := range list {
			match := one.path.FindStringSubmatch(m.Path)
			if one.kind != m.Kind || match == nil {
				continue
			}
			if m.Mode != one.mode || m.Owner != one.owner || m.Group != one.owner {
				return fmt.Errorf("%s with mode %04o, owner %q and group %q not allowed; want mode %04o and %q", m.Kind, m.Mode, m.Owner, m.Group, one.mode, one.owner)
			}
			if one.check == nil {
				return nil
			}
			var s Stack
			if len(match) > 1 {
				s.Cluster = match[1]
			}
			return one.check(s, m.Data)
		}
		return fmt.Errorf("making a %s here is not allowed", m.Kind)
	}
}

func anything(Stack, []byte) error { return nil }

func isJSON(_ Stack, data []byte) error {
	if !json.Valid(data) {
		return fmt.Errorf("the record is not JSON")
	}
	return nil
}

// eachLine allows comments and lines of one form.
func eachLine(form *regexp.Regexp) func(Stack, []byte) error {
	return func(_ Stack, data []byte) error {
		return readLines(data, func(line string) bool { return form != nil && form.MatchString(line) })
	}
}

// readLines checks every line that is not empty or a comment with ok. A backslash is
// refused everywhere: at the end of a comment some parsers join the next line to it.
func readLines(data []byte, ok func(line string) bool) error {
	n := 0
	for raw := range bytes.Lines(data) {
		n++
		line := strings.TrimSuffix(string(raw), "\n")
		if strings.ContainsFunc(line, func(r rune) bool { return r < ' ' || r > '~' || r == '\\' }) {
			return fmt.Errorf("line %d: character not allowed", n)
		}
		if line != "" && line[0] != '#' && !ok(line) {
			return fmt.Errorf("line %d: content not allowed", n)
		}
	}
	return nil
}

const (
	addressForm = `[A-Za-z0-9]([A-Za-z0-9.:-]{0,252})`
	portForm    = `[1-9][0-9]{3,4}`
	partForm    = `[a-z][-a-z0-9_]{0,31}`
)

var gresLine = regexp.MustCompile(`^NodeName=[a-z0-9][-a-z0-9]{0,62} Name=gpu Type=[a-z0-9][-a-z0-9_]{0,39} File=/dev/([A-Za-z0-9_-]+/)*[A-Za-z0-9_-]+(\[[0-9]{1,3}-[0-9]{1,3}\])?$`)

// slurmConf maps each key of a slurm.conf to the form of its value.
func slurmConf(s Stack) map[string]string {
	exactly := regexp.QuoteMeta
	return map[string]string{
		"ClusterName":              exactly(s.Cluster),
		"SlurmctldHost":            `[A-Za-z0-9][-A-Za-z0-9_.]{0,252}\(` + addressForm + `\)`,
		"SlurmctldPort":            portForm,
		"SlurmdPort":               portForm,
		"SlurmUser":                SlurmUser,
		"AuthType":                 "auth/munge",
		"AuthInfo":                 exactly("socket=" + s.MungeSocket()),
		"CredType":                 "cred/munge",
		"SlurmctldParameters":      "enable_configless",
		"SlurmdParameters":         "config_overrides",
		"MaxNodeCount":             `[1-9][0-9]{0,5}`,
		"TreeWidth":                `[1-9][0-9]{0,5}`,
		"StateSaveLocation":        exactly(s.State()),
		"SlurmctldPidFile":         exactly(s.Run() + "/slurmctld.pid"),
		"SlurmctldLogFile":         exactly(s.Log() + "/slurmctld.log"),
		"SlurmdSpoolDir":           exactly(WorkerSpoolDir),
		"SlurmdPidFile":            exactly(WorkerPID),
		"SlurmdLogFile":            exactly(WorkerLog),
		"SlurmctldTimeout":         `[1-9][0-9]{0,4}`,
		"SlurmdTimeout":            `[1-9][0-9]{0,4}`,
		"ReturnToService":          `[012]`,
		"ProctrackType":            "proctrack/linuxproc",
		"TaskPlugin":               "task/none",
		"JobAcctGatherType":        "jobacct_gather/linux",
		"SwitchType":               "switch/none",
		"MpiDefault":               "none",
		"MailProg":                 "/bin/true",
		"SelectType":               "select/cons_tres",
		"SelectTypeParameters":     "CR_Core_Memory",
		"DefMemPerCPU":             `[1-9][0-9]{0,8}`,
		"GresTypes":                "gpu",
		"SchedulerParameters":      `sched_interval=[0-9]{1,6},batch_sched_delay=[0-9]{1,6},bf_interval=[0-9]{1,6}`,
		"AccountingStorageType":    "accounting_storage/slurmdbd",
		"AccountingStorageHost":    addressForm,
		"AccountingStoragePort":    portForm,
		"AccountingStoragePass":    exactly(s.MungeSocket()),
		"AccountingStorageTRES":    "gres/gpu",
		"AccountingStorageEnforce": "associations,limits,qos,safe",
		"AccountingStoreFlags":     "job_comment",
		"EnforcePartLimits":        "ALL",
		"PartitionName":            partForm + ` Nodes=ALL State=UP MaxTime=(UNLIMITED|[1-9][0-9]{0,8})( Default=YES)?`,
	}
}

func slurmdbdConf(s Stack) map[string]string {
	exactly := regexp.QuoteMeta
	return map[string]string{
		"DbdHost":     "localhost",
		"DbdPort":     portForm,
		"AuthType":    "auth/munge",
		"AuthInfo":    exactly("socket=" + s.MungeSocket()),
		"SlurmUser":   SlurmUser,
		"PidFile":     exactly(s.Run() + "/slurmdbd.pid"),
		"LogFile":     exactly(s.Log() + "/slurmdbd.log"),
		"StorageType": "accounting_storage/mysql",
		"StorageHost": "localhost",
		"StorageUser": SlurmUser,
		"StorageLoc":  exactly(s.Database()),
	}
}

func checkSlurmConf(s Stack, data []byte) error { return checkKeys(slurmConf(s), data) }

func checkSlurmdbdConf(s Stack, data []byte) error { return checkKeys(slurmdbdConf(s), data) }

func checkKeys(forms map[string]string, data []byte) error {
	return readLines(data, func(line string) bool {
		key, value, _ := strings.Cut(line, "=")
		form, known := forms[key]
		return known && regexp.MustCompile(`^(?:`+form+`)$`).MatchString(value)
	})
}

// checkAccounts allows root as the only administrator, and users.
func checkAccounts(s Stack, data []byte) error {
	person := regexp.MustCompile(`^User - '[a-z_][-a-z0-9_]{0,31}':DefaultAccount='members':Fairshare=1$`)
	return readLines(data, func(line string) bool {
		switch line {
		case "Cluster - '" + s.Cluster + "':Fairshare=1:QOS='normal'", "Parent - 'root'", "Parent - 'members'",
			"User - 'root':DefaultAccount='root':AdminLevel='Administrator':Fairshare=1",
			"Account - 'members':Description='members':Organization='berth':Fairshare=1":
			return true
		}
		return person.MatchString(line)
	})
}
