package estate

import (
	"fmt"
	"strings"

	"berth/schema"
	"berth/schema/authority"
	"berth/schema/load"
)

// people are what the role bindings of a tree said of persons so far.
type people struct {
	unix    map[string]statement // by login
	signers map[string]statement // by key
}

// statement is what a field of a document says.
type statement struct {
	doc   *load.Document
	path  string
	value string
}

// people warns about a person with two Unix users, about a key that two people sign with, and about
// a role that somebody has already under another spelling: a forge compares logins without case. They
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
			c.warn(doc, at+".login", CodeNoEffect, fmt.Sprintf("%s has the role %s here already, as %s: take one away", m.Login, m.Role, other))
		}
		roles[[2]string{login, m.Role}] = m.Login
		for _, other := range of[login] {
			if other != m.Role && authority.Includes(other, m.Role) {
				c.warn(doc, at+".role", CodeNoEffect, fmt.Sprintf("%s grants nothing: %s is %s here, too, which includes it", m.Role, m.Login, other))
				break
			}
		}
		if m.UnixUser != nil {
			if first, same := c.said(c.known.unix, login, statement{doc, at + ".unix_user", m.UnixUser.Name}); !same {
				c.warn(doc, at+".unix_user.name", "conflict.unix-user", fmt.Sprintf("%s is the Unix user %s already (%s): one login is one Unix user, or neither finds the files of the other", m.Login, first.value, first.place()))
			}
		}
		for k, key := range m.SigningKeys {
			if first, same := c.said(c.known.signers, load.KeyBytes(key), statement{doc, at, login}); !same {
				c.warn(doc, load.Item(at+".signing_keys", k), "conflict.key", fmt.Sprintf("is a key of %s already (%s): a key shows who signed, so each person has their own", first.value, first.place()))
			}
		}
	}
}

// said keeps the first that is said of something, and reports whether the next one says the same.
func (c *check) said(by map[string]statement, of string, next statement) (first statement, same bool) {
	first, ok := by[of]
	if !ok {
		by[of], first = next, next
	}
	return first, first.value == next.value
}

func (s statement) place() string {
	return s.doc.Header.At(s.path).Place()
}
