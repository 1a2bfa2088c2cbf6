package profile

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"berth/runtimes"
)

// The files and directories that may be made on a host, and their content. Slurm's
// configuration names programs and libraries that daemons and tools run as root.
// So each line of a file has to be a key of the list with a value of its form.

// made is a kind of file or directory that the runtime makes.
type made struct {
	kind  string
	path  *expression // its first group, if any, is the cluster
	mode  uint32
	owner string
	check func(s Stack, data []byte) error // of a file
}

const clusterGroup = `([a-z][a-z0-9_]{0,39})`

// everything lists all that the runtime makes.
func everything() []made {
	at := func(pattern string) *expression { return compile(`^` + pattern + `$`) }
	dir := func(mode uint32, owner string, patterns ...string) made {
		return made{kind: "dir", path: at(`(?:` + strings.Join(patterns, `|`) + `)`), mode: mode, owner: owner}
	}
	return []made{
		dir(0o755, "", InstanceDir, EtcDir, EtcDir+`/[a-z][a-z0-9_]{0,39}`, WorkerSpoolDir, WorkerOldLogs),
		dir(0o755, SlurmUser, StateDir, StateDir+`/[a-z][a-z0-9_]{0,39}`, LogDir, LogDir+`/[a-z][a-z0-9_]{0,39}`),
		dir(0o700, SlurmUser, StateDir+`/[a-z][a-z0-9_]{0,39}/state`),
		dir(0o711, "", JobsDir, JobsDir+`/[a-z][a-z0-9_]{0,39}`),
		dir(0o700, "", BackupDir, BackupDir+`/[a-z][a-z0-9_]{0,39}`),
		dir(0o700, MungeUser, MungeEtc, MungeLog),
		dir(0o711, MungeUser, MungeLib),
		dir(0o755, DatabaseUser, DatabaseDir),
		dir(0o700, DatabaseUser, DatabaseData),
		{"secret", at(MungeEtc + `/` + clusterGroup + `\.key`), 0o400, MungeUser, nil},
		{"file", at(WorkerMungeKey), 0o400, MungeUser, anything},
		// Berth restores this file from a worker. It can read the file already, so that writing it discloses nothing.
		{"file", at(MungeEtc + `/` + clusterGroup + `\.key`), 0o400, MungeUser, checkMungeKey},
		{"file", at(InstanceDir + `/[a-z][a-z0-9_]{0,39}\.json(\.copy|\.damaged)?`), 0o600, "", isJSON},
		{"file", at(DatabaseInstalled), 0o644, "", anything},
		{"file", at(EtcDir + `/` + clusterGroup + `/slurm\.conf`), 0o644, "", checkSlurmConf},
		// No program reads it, and a person may have written it.
		{"file", at(EtcDir + `/` + clusterGroup + `/slurm\.conf\.previous`), 0o644, "", anything},
		{"file", at(EtcDir + `/` + clusterGroup + `/gres\.conf`), 0o644, "", eachLine(gresLine)},
		{"file", at(EtcDir + `/` + clusterGroup + `/cgroup\.conf`), 0o644, "",
			eachLine(compile(`^(CgroupPlugin=autodetect|` + strings.Join(Confinement(), `|`) + `)$`))},
		{"file", at(EtcDir + `/` + clusterGroup + `/topology\.conf`), 0o644, "", eachLine(switchLine)},
		{"file", at(EtcDir + `/` + clusterGroup + `/plugstack\.conf`), 0o644, "", eachLine(nil)},
		{"file", at(EtcDir + `/` + clusterGroup + `/slurmdbd\.conf`), 0o600, SlurmUser, checkSlurmdbdConf},
		// It belongs to no cluster: the name of a cluster ends in a hash.
		{"file", at(WorkerLogRotation), 0o644, "", func(_ Stack, data []byte) error { return same(data, WorkerLogRules()) }},
		{"file", at(rotationDir + `/berth-` + clusterGroup), 0o644, "",
			func(s Stack, data []byte) error { return same(data, s.LogRules()) }},
		{"file", at(StateDir + `/` + clusterGroup + `/accounts\.cfg`), 0o600, "", checkAccounts},
	}
}

// MungeKeySize is the number of bytes of a munge key that Berth makes. munged takes 32 to 1,024 (munged(8)).
const MungeKeySize = 128

func checkMungeKey(_ Stack, data []byte) error {
	if len(data) < 32 || len(data) > 1024 {
		return fmt.Errorf("%d bytes are no munge key", len(data))
	}
	return nil
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
				return fmt.Errorf("%s with mode %04o, owner %q and group %q not allowed; want mode %04o and %q", m.Kind, m.Mode, m.Owner,
					m.Group, one.mode, one.owner)
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

// same allows one content.
func same(data, want []byte) error {
	if !bytes.Equal(data, want) {
		return fmt.Errorf("the content differs from the only allowed one")
	}
	return nil
}

func isJSON(_ Stack, data []byte) error {
	if !json.Valid(data) {
		return fmt.Errorf("the record is not JSON")
	}
	return nil
}

// eachLine allows comments and lines of one form.
func eachLine(form *expression) func(Stack, []byte) error {
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

var gresLine = compile(`^NodeName=` + NameForm + ` Name=gpu Type=` + NameForm +
	` File=/dev/([A-Za-z0-9_-]+/)*[A-Za-z0-9_-]+(\[[0-9]{1,3}-[0-9]{1,3}\])?$`)

var switchLine = compile(`^SwitchName=` + NameForm + ` (Nodes=` + nodeListForm + `|Switches=` + NameForm + `(,` + NameForm + `)*)$`)

func checkSlurmConf(s Stack, data []byte) error { return checkParameters(s.SlurmConf(), data) }

func checkSlurmdbdConf(s Stack, data []byte) error { return checkParameters(s.SlurmdbdConf(), data) }

func checkParameters(list []Parameter, data []byte) error {
	return readLines(data, func(line string) bool {
		name, value, _ := strings.Cut(line, "=")
		return slices.ContainsFunc(list, func(p Parameter) bool { return p.Name == name && p.allows(value) })
	})
}

// checkAccounts allows root as the only administrator, accounts and users.
func checkAccounts(s Stack, data []byte) error {
	const name = `'` + recordForm + `'`
	other := compile(`^(Parent - ` + name + `|User - ` + name + `:DefaultAccount=` + name + `:Fairshare=1|Account - (` + name +
		`):Description=(` + name + `):Organization='berth':Fairshare=1)$`)
	return readLines(data, func(line string) bool {
		return line == "Cluster - '"+s.Cluster+"':Fairshare=1:QOS='normal'" ||
			line == "User - 'root':DefaultAccount='root':AdminLevel='Administrator':Fairshare=1" || other.MatchString(line)
	})
}
