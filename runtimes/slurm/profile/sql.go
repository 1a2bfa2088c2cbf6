package profile

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// The statements for the SQL client. It runs as the database's administrator, who can
// read and write files of the database's account. So only these statements, each
// with the name of a cluster, are allowed.

// Database is the accounting database of a cluster.
type Database struct{ Cluster string }

// Name is the name of the database.
func (d Database) Name() string { return "slurm_acct_" + d.Cluster }

// RestoreName is the name of the database into which a backup is restored as a trial.
func (d Database) RestoreName() string { return "slurm_restore_" + d.Cluster }

// PingSQL has no effect; the server only answers.
const PingSQL = "SELECT 1;\n"

// CreateSQL returns the statements that make the database.
func (d Database) CreateSQL() string {
	return fmt.Sprintf("CREATE DATABASE IF NOT EXISTS `%s`;\n", d.Name()) + d.GrantSQL()
}

// GrantSQL returns the statements that let slurmdbd use the database. Its account
// authenticates by the socket without a password.
func (d Database) GrantSQL() string {
	return fmt.Sprintf("CREATE USER IF NOT EXISTS '%[1]s'@'localhost' IDENTIFIED VIA unix_socket;\n"+
		"ALTER USER '%[1]s'@'localhost' IDENTIFIED VIA unix_socket;\n"+
		"GRANT ALL ON `%[2]s`.* TO '%[1]s'@'localhost';\n",
		SlurmUser, d.grantPattern())
}

// DropSQL returns the statements that remove the database and its grant.
func (d Database) DropSQL() string {
	return fmt.Sprintf("DROP DATABASE IF EXISTS `%s`;\nDELETE FROM mysql.db WHERE Db = '%s';\nFLUSH PRIVILEGES;\n",
		d.Name(), strings.ReplaceAll(d.grantPattern(), `\`, `\\`))
}

// CreateRestoreSQL returns the statements that make an empty database for a trial.
func (d Database) CreateRestoreSQL() string {
	return d.DropRestoreSQL() + fmt.Sprintf("CREATE DATABASE `%s`;\n", d.RestoreName())
}

// DropRestoreSQL returns the statement that removes the database of a trial.
func (d Database) DropRestoreSQL() string {
	return fmt.Sprintf("DROP DATABASE IF EXISTS `%s`;\n", d.RestoreName())
}

// CountSQL returns the query for the numbers of tables and of jobs in the database,
// or in that of a trial. Each is a line.
func (d Database) CountSQL(restored bool) string {
	name := d.Name()
	if restored {
		name = d.RestoreName()
	}
	return fmt.Sprintf("SELECT COUNT(*) FROM information_schema.tables WHERE table_schema = '%s';\n"+
		"SELECT COUNT(*) FROM `%s`.`%s_job_table`;\n", name, name, d.Cluster)
}

// LastJobSQL returns the query for the highest id of a job in the database; 0: it has none.
func (d Database) LastJobSQL() string {
	return fmt.Sprintf("SELECT COALESCE(MAX(id_job), 0) FROM `%s`.`%s_job_table`;\n", d.Name(), d.Cluster)
}

// WritableArgs returns the arguments with which the SQL client tries whether the database can be
// written. The statements change nothing. While another client locks the database, they fail with ERROR 1205. A
// read-only server still lets the administrator write, so they print read_only.
func (d Database) WritableArgs() []string {
	return append(SQLArgs(), fmt.Sprintf("%sSET lock_wait_timeout = 2; "+
		"DELETE FROM `%s`.`%s_last_ran_table` WHERE FALSE; SELECT @@GLOBAL.read_only",
		executeOption, d.Name(), d.Cluster))
}

const executeOption = "--execute="

// triesToWrite reports whether arguments that checkClient allows are those of WritableArgs.
func triesToWrite(args []string) bool {
	return len(args) > 0 && strings.HasPrefix(args[len(args)-1], executeOption)
}

// grantPattern returns the name of the database for GRANT, which takes a pattern in
// which "_" matches any character. The name needs no other quoting.
func (d Database) grantPattern() string {
	return strings.ReplaceAll(d.Name(), "_", `\_`)
}

var sqlDatabase = regexp.MustCompile("`slurm_(?:acct|restore)_([^`]*)`")

func checkSQL(statements []byte) error {
	if len(statements) == 0 || string(statements) == PingSQL {
		return nil
	}
	if m := sqlDatabase.FindStringSubmatch(strings.ReplaceAll(string(statements), `\_`, "_")); m != nil {
		s := Stack{Cluster: m[1]}
		d := s.Database()
		allowed := []string{
			d.CreateSQL(), d.GrantSQL(), d.DropSQL(), d.CreateRestoreSQL(), d.DropRestoreSQL(),
			d.CountSQL(false), d.CountSQL(true), d.LastJobSQL(),
		}
		if s.Valid() == nil && slices.Contains(allowed, string(statements)) {
			return nil
		}
	}
	return fmt.Errorf("statements not allowed")
}
