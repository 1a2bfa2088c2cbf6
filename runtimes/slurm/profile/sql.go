package profile

import (
	"bytes"
	"fmt"
	"regexp"
	"strings"
)

// What the SQL client is ever sent. It runs as the database's administrator,
// who can read and write files of the database's account: nothing but these
// statements, with the name of a cluster in its places, may reach it.

// PingSQL asks the server for nothing but an answer.
const PingSQL = "SELECT 1;\n"

// CreateDatabaseSQL makes the stack's database, which slurmdbd's account alone
// may use. That account is vouched for by the socket and has no password.
func (s Stack) CreateDatabaseSQL() string {
	return fmt.Sprintf("CREATE DATABASE IF NOT EXISTS `%s`;\n"+
		"CREATE USER IF NOT EXISTS '%s'@'localhost' IDENTIFIED VIA unix_socket;\n"+
		"GRANT ALL ON `%s`.* TO '%s'@'localhost';\n",
		s.Database(), SlurmUser, s.grantPattern(), SlurmUser)
}

// DropDatabaseSQL takes the stack's database and the right to it away.
func (s Stack) DropDatabaseSQL() string {
	return fmt.Sprintf("DROP DATABASE IF EXISTS `%s`;\nDELETE FROM mysql.db WHERE Db = '%s';\nFLUSH PRIVILEGES;\n",
		s.Database(), strings.ReplaceAll(s.grantPattern(), `\`, `\\`))
}

// grantPattern names the database where a name is a pattern, in which "_"
// stands for any character. The name is of a form that needs no other quoting.
func (s Stack) grantPattern() string {
	return strings.ReplaceAll(s.Database(), "_", `\_`)
}

var sqlDatabase = regexp.MustCompile("`slurm_acct_([^`]*)`")

func checkSQL(statements []byte) error {
	if string(statements) == PingSQL {
		return nil
	}
	if m := sqlDatabase.FindSubmatch(statements); m != nil {
		s := Stack{Cluster: string(m[1])}
		if s.Valid() == nil && (bytes.Equal(statements, []byte(s.CreateDatabaseSQL())) || bytes.Equal(statements, []byte(s.DropDatabaseSQL()))) {
			return nil
		}
	}
	return fmt.Errorf("other statements than the few allowed")
}
