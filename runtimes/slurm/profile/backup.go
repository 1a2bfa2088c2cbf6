package profile

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// The programs that make a backup of a stack and read it again. The name of a backup is
// the time of its begin.

// BackupName is the layout of the name, for time.Format.
const BackupName = "20060102T150405Z"

var backupName = compile(`^[0-9]{8}T[0-9]{6}Z$`)

// DumpArgs returns the arguments with which mariadb-dump writes the database, as it is at
// one moment, while slurmdbd goes on (mariadb-dump(1)).
func (s Stack) DumpArgs(name string) []string {
	return []string{
		"--no-defaults", "--user=root", "--socket=" + DatabaseSocket, "--single-transaction", "--quick",
		"--result-file=" + s.DatabaseBackup(name), s.Database(),
	}
}

// RestoreArgs returns the arguments with which the SQL client reads a dump from its input into
// the database of a trial.
func (s Stack) RestoreArgs() []string { return append(SQLArgs(), "--database="+s.RestoreDatabase()) }

// ArchiveArgs returns the arguments with which tar writes the StateSaveLocation. slurmctld
// replaces its files while it reads, which tar reports with exit status 1 (tar(1)).
func (s Stack) ArchiveArgs(name string) []string {
	return []string{"--create", "--file=" + s.StateBackup(name), "--directory=" + s.Lib(), "state"}
}

// ListArchiveArgs returns the arguments with which tar lists an archive.
func (s Stack) ListArchiveArgs(name string) []string {
	return []string{"--list", "--file=" + s.StateBackup(name)}
}

// dumps are the files that may be restored in a trial.
var dumps = regexp.MustCompile(`^` + BackupDir + `/` + clusterGroup + `/[0-9]{8}T[0-9]{6}Z\.sql$`)

var anyBackup = compile(BackupDir + `/([^/]*)/([0-9TZ]*)\.`)

// backupArgs allows one of the forms that an argument names the backup of.
func backupArgs(forms ...func(Stack, string) []string) func([]string) error {
	return func(args []string) error {
		if m := anyBackup.FindStringSubmatch(strings.Join(args, " ")); m != nil {
			s := Stack{m[1]}
			for _, form := range forms {
				if s.Valid() == nil && backupName.MatchString(m[2]) && slices.Equal(args, form(s, m[2])) {
					return nil
				}
			}
		}
		return fmt.Errorf("not one of the allowed forms")
	}
}

// clientDatabase matches the last argument of RestoreArgs and of WritableArgs; its group is the cluster.
var clientDatabase = regexp.MustCompile("^--(?:database=|execute=.* `)slurm_(?:restore|acct)_([a-z0-9_]*)(?:$|`)")

// checkClient allows the SQL client with statements, with a dump for a trial, and to try whether the database can be written.
func checkClient(args []string) error {
	if slices.Equal(args, SQLArgs()) {
		return nil
	}
	if m := clientDatabase.FindStringSubmatch(strings.Join(args[max(0, len(args)-1):], "")); m != nil {
		s := Stack{m[1]}
		if s.Valid() == nil && (slices.Equal(args, s.RestoreArgs()) || slices.Equal(args, s.WritableArgs())) {
			return nil
		}
	}
	return fmt.Errorf("not one of the allowed forms")
}
