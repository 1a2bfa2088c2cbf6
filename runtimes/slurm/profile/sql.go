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

// PingSQL has no effect; the server only answers.
const PingSQL = "SELECT 1;\n"

// CreateDatabaseSQL returns the statements that make the stack's database.
func (s Stack) CreateDatabaseSQL() string {
	return fmt.Sprintf("CREATE DATABASE IF NOT EXISTS `%s`;\n", s.Database()) + s.GrantSQL()
}

// GrantSQL returns the statements that let slurmdbd use the stack's database. Its account
// authenticates by the socket without a password.
func (s Stack) GrantSQL() string {
	return fmt.Sprintf("CREATE USER IF NOT EXISTS '%[1]s'@'localhost' IDENTIFIED VIA unix_socket;\n"+
		"ALTER USER '%[1]s'@'localhost' IDENTIFIED VIA unix_socket;\n"+
		"GRANT ALL ON `%[2]s`.* TO '%[1]s'@'localhost';\n",
		SlurmUser, s.grantPattern())
}

// DropDatabaseSQL returns the statements that remove the database and its grant.
func (s Stack) DropDatabaseSQL() string {
	return fmt.Sprintf("DROP DATABASE IF EXISTS `%s`;\nDELETE FROM mysql.db WHERE Db = '%s';\nFLUSH PRIVILEGES;\n",
		s.Database(), strings.ReplaceAll(s.grantPattern(), `\`, `\\`))
}

// CreateRestoreSQL returns the statements that make an empty database for a trial.
func (s Stack) CreateRestoreSQL() string {
	return s.DropRestoreSQL() + fmt.Sprintf("CREATE DATABASE `%s`;\n", s.RestoreDatabase())
}

// DropRestoreSQL returns the statement that removes the database of a trial.
func (s Stack) DropRestoreSQL() string {
	return fmt.Sprintf("DROP DATABASE IF EXISTS `%s`;\n", s.RestoreDatabase())
}

// CountSQL returns the query for the numbers of tables and of jobs in the stack's database,
// or in that of a trial. Each is a line.
func (s Stack) CountSQL(restored bool) string {
	name := s.Database()
	if restored {
		name = s.RestoreDatabase()
	}
	return fmt.Sprintf("SELECT COUNT(*) FROM information_schema.tables WHERE table_schema = '%s';\nSELECT COUNT(*) FROM `%s`.`%s_job_table`;\n", name, name, s.Cluster)
}

// LastJobSQL returns the query for the highest id of a job in the stack's database; 0: it has none.
func (s Stack) LastJobSQL() string {
	return fmt.Sprintf("SELECT COALESCE(MAX(id_job), 0) FROM `%s`.`%s_job_table`;\n", s.Database(), s.Cluster)
}

// WritableArgs returns the arguments with which the SQL client tries whether the stack's database can be written. The
// statements change nothing. While another client locks the database, they fail with ERROR 1205. A read-only server still lets the
// administrator write, so they print read_only.
func (s Stack) WritableArgs() []string {
	return append(SQLArgs(), fmt.Sprintf("%sSET lock_wait_timeout = 2; DELETE FROM `%s`.`%s_last_ran_table` WHERE FALSE; SELECT @@GLOBAL.read_only",
		executeOption, s.Database(), s.Cluster))
}

const executeOption = "--execute="

// triesToWrite reports whether arguments that checkClient allows are those of WritableArgs.
func triesToWrite(args []string) bool {
	return len(args) > 0 && strings.HasPrefix(args[len(args)-1], executeOption)
}

// grantPattern returns the name of the database for GRANT, which takes a pattern in
// which "_" matches any character. The name needs no other quoting.
func (s Stack) grantPattern() string {
	return strings.ReplaceAll(s.Database(), "_", `\_`)
}

var sqlDatabase = regexp.MustCompile("`slurm_(?:acct|restore)_([^`]*)`")

func checkSQL(statements []byte) error {
	if len(statements) == 0 || string(statements) == PingSQL {
		return nil
	}
	if m := sqlDatabase.FindStringSubmatch(strings.ReplaceAll(string(statements), `\_`, "_")); m != nil {
		s := Stack{Cluster: m[1]}
		allowed := []string{
			s.CreateDatabaseSQL(), s.GrantSQL(), s.DropDatabaseSQL(), s.CreateRestoreSQL(), s.DropRestoreSQL(),
			s.CountSQL(false), s.CountSQL(true), s.LastJobSQL(),
		}
		if s.Valid() == nil && slices.Contains(allowed, string(statements)) {
			return nil
		}
	}
	return fmt.Errorf("statements not allowed")
}
