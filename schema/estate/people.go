package estate

import (
	"fmt"
	"slices"
	"strings"

	"berth/schema"
	"berth/schema/authority"
	"berth/schema/load"
)

// statements are the statements of a tree's documents about people and artifacts so far.
type statements struct {
	unix    map[string]statement // Unix user, by login
	signers map[string]statement // login, by key
	bytes   map[string]statement // digest by reference, and reference by digest
}

func newStatements() statements {
	return statements{unix: map[string]statement{}, signers: map[string]statement{}, bytes: map[string]statement{}}
}

// statement is the statement of one field of a document.
type statement struct {
	end
	value string
}

// people warns about a person with two Unix users, about a key that two people sign with, and about
// a role that a person has already under another spelling: a forge compares logins without case. They
// are warnings, because documents in force must not block an upgrade.
func (c *check) people(doc *load.Document, d *schema.RoleBinding) {
	roles, of := map[[2]string]string{}, map[string][]string{} // of: roles by login
	for _, m := range d.Spec.Members {
		of[strings.ToLower(m.Login)] = append(of[strings.ToLower(m.Login)], m.Role)
	}
	for i, m := range d.Spec.Members {
		at, login := load.Item("spec.members", i), strings.ToLower(m.Login)
		if login == "" {
			continue
		}
		if other, ok := roles[[2]string{login, m.Role}]; ok {
			c.warn(doc, at+".login", CodeNoEffect,
				fmt.Sprintf("%s has the role %s here already, as %s: take one away", m.Login, m.Role, other))
		}
		roles[[2]string{login, m.Role}] = m.Login
		includes := func(other string) bool { return other != m.Role && authority.Includes(other, m.Role) }
		if k := slices.IndexFunc(of[login], includes); k >= 0 {
			c.warn(doc, at+".role", CodeNoEffect,
				fmt.Sprintf("%s grants nothing: %s is %s here, too, which includes it", m.Role, m.Login, of[login][k]))
		}
		if m.UnixUser != nil {
			c.agree(c.known.unix, login, statement{end{doc, at + ".unix_user.name"}, m.UnixUser.Name}, "conflict.unix-user",
				func(of statement) string {
					return fmt.Sprintf("%s is the Unix user %s, too (%s): one login is one Unix user. Write the login that this is "+
						"about, or the same Unix user", m.Login, of.value, of.place())
				})
		}
		for k, key := range m.SigningKeys {
			c.agree(c.known.signers, load.KeyBytes(key), statement{end{doc, load.Item(at+".signing_keys", k)}, login}, "conflict.key",
				func(of statement) string {
					return fmt.Sprintf("is a key of %s, too (%s): a key shows who signed, so each person has their own", of.value,
						of.place())
				})
		}
	}
}

// agree warns if the next field says something else than the first one about a person or a key. says is the message at
// one of the two about the other.
func (c *check) agree(by map[string]statement, about string, next statement, code string, says func(of statement) string) {
	first, known := by[about]
	switch {
	case !known:
		by[about] = next
	case first.value != next.value:
		c.findings = append(c.findings, clash(next.end, first.end, schema.SeverityWarning, code, func(of end) string {
			if of == next.end {
				return says(next)
			}
			return says(first)
		}))
	}
}
