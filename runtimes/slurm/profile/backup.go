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

// Backup is one backup of a stack: its two files, and the arguments of the programs that make them.
type Backup struct {
	stack Stack
	name  string
}

// DatabaseFile is the dump of the database.
func (b Backup) DatabaseFile() string { return b.stack.Backups() + "/" + b.name + ".sql" }

// StateFile is the archive of the StateSaveLocation.
func (b Backup) StateFile() string { return b.stack.Backups() + "/" + b.name + ".state.tar" }

// DumpArgs returns the arguments with which mariadb-dump writes a consistent copy of the database
// while slurmdbd goes on (mariadb-dump(1)).
func (b Backup) DumpArgs() []string {
	return []string{
		"--no-defaults", "--user=root", "--socket=" + DatabaseSocket, "--single-transaction", "--quick",
		"--result-file=" + b.DatabaseFile(), b.stack.Database().Name(),
	}
}

// RestoreArgs returns the arguments with which the SQL client reads a dump from its input into
// the database of a trial.
func (d Database) RestoreArgs() []string { return append(SQLArgs(), "--database="+d.RestoreName()) }

// ArchiveArgs returns the arguments with which tar writes the StateSaveLocation. slurmctld
// replaces its files while it reads, which tar reports with exit status 1 (tar(1)).
func (b Backup) ArchiveArgs() []string {
	return []string{"--create", "--file=" + b.StateFile(), "--directory=" + b.stack.Lib(), "state"}
}

// ListArchiveArgs returns the arguments with which tar lists an archive.
func (b Backup) ListArchiveArgs() []string {
	return []string{"--list", "--file=" + b.StateFile()}
}

// dumps are the files that may be restored in a trial.
var dumps = regexp.MustCompile(`^` + BackupDir + `/` + clusterGroup + `/[0-9]{8}T[0-9]{6}Z\.sql$`)

var anyBackup = compile(BackupDir + `/([^/]*)/([0-9TZ]*)\.`)

// backupArgs allows one of the forms that an argument names the backup of.
func backupArgs(forms ...func(Backup) []string) func([]string) error {
	return func(args []string) error {
		if m := anyBackup.FindStringSubmatch(strings.Join(args, " ")); m != nil {
			s := Stack{m[1]}
			for _, form := range forms {
				if s.Valid() == nil && backupName.MatchString(m[2]) && slices.Equal(args, form(s.Backup(m[2]))) {
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
		if s.Valid() == nil && (slices.Equal(args, s.Database().RestoreArgs()) || slices.Equal(args, s.Database().WritableArgs())) {
			return nil
		}
	}
	return fmt.Errorf("not one of the allowed forms")
}
