// Package command reads the commands that users give in comments on a pull request:
// one line that begins with /berth.
//
// The package is pure. It knows no forge, no users and no permissions: it returns the
// command of a line, or says what is wrong with the line.
package command

import (
	"errors"
	"fmt"
	"regexp"
	"strings"

	"berth/schema"
)

// Verb is the first word of a command.
type Verb string

// The verbs. Each has one row in the table below.
const (
	Plan      Verb = "plan"
	Apply     Verb = "apply"
	AckDelete Verb = "ack-delete"
	Retry     Verb = "retry"
	Explain   Verb = "explain"
	Help      Verb = "help"
)

// Usage is what the help says about one verb.
type Usage struct {
	Verb   Verb
	Args   string // "": none
	Who    string
	Effect string

	read func(*Command, []string) error // its arguments; nil: it has none
}

// Usages returns the table of verbs in the order of the help.
func Usages() []Usage {
	return []Usage{
		{Plan, "", "users who may write, and the author", "plans again and shows the result", nil},
		{Apply, "COMMIT", "users who may write, with permission for the change", "brings into force what COMMIT of main changed and what is held as unauthorized, stale plan or blocked deletion", readApply},
		{AckDelete, "DIGEST", "users who may write, with deletions.acknowledge", "acknowledges exactly this blocked deletion, before or after the merge", readDigest},
		{Retry, "", "users who may write, with permission for the change", "after a merge: retries the instances that failed", nil},
		{Explain, "INSTANCE [FIELD]", "users who may read", "shows each value and the line that made it; INSTANCE is TENANT.PROJECT/NAME", readExplain},
		{Help, "", "users who may read", "shows this table", nil},
	}
}

// Command is a valid command.
type Command struct {
	Verb Verb
	// Bound is, in lower case, the first MinBound or more digits of a commit for
	// Apply, and the whole digest for AckDelete.
	Bound    string
	Instance schema.Key // of Explain
	Field    string     // of Explain; "": all of it
	Reason   string     // of Apply: for break-glass access; "": none is asked for
}

// ErrOther: the line is not a command to Berth.
var ErrOther = errors.New("not a command to Berth")

const (
	// MinBound is the fewest digits that identify a commit.
	MinBound = 7
	// maxLine is the most bytes of a line.
	maxLine = 512
	// breakGlass precedes a reason, as in a commit's trailer.
	breakGlass = "Break-Glass:"
)

var (
	hex   = regexp.MustCompile(`^[0-9a-f]{7,64}$`)
	field = regexp.MustCompile(`^[A-Za-z0-9_.\[\]-]{1,100}$`)
)

// Parse reads a line, such as "/berth apply 1f0c9aa". Backquotes around a word are
// ignored, as they come with text copied from a comment. The error is one sentence
// that quotes nothing of the line. It is ErrOther if the line does not begin with
// /berth.
func Parse(line string) (Command, error) {
	words := strings.Fields(line[:min(len(line), maxLine+1)])
	switch {
	case len(words) == 0 || words[0] != "/berth":
		return Command{}, ErrOther
	case len(line) > maxLine:
		return Command{}, fmt.Errorf("the line is longer than %d bytes", maxLine)
	case len(words) == 1:
		return Command{Verb: Help}, nil
	}
	for i, w := range words {
		if len(w) > 2 && w[0] == '`' && w[len(w)-1] == '`' {
			words[i] = w[1 : len(w)-1]
		}
	}
	c, args := Command{Verb: Verb(strings.ToLower(words[1]))}, words[2:]
	for _, u := range Usages() {
		switch {
		case u.Verb != c.Verb:
		case u.read != nil:
			err := u.read(&c, args)
			return c, err
		case len(args) > 0:
			return c, fmt.Errorf("the command takes no arguments: /berth %s", u.Verb)
		default:
			return c, nil
		}
	}
	return Command{}, errors.New("unknown command; /berth help lists the commands")
}

func readApply(c *Command, args []string) error {
	if len(args) > 2 && strings.EqualFold(args[1], breakGlass) {
		c.Reason, args = strings.Join(args[2:], " "), args[:1]
	}
	if len(args) != 1 {
		return errors.New("write /berth apply COMMIT, or /berth apply COMMIT Break-Glass: REASON")
	}
	c.Bound = strings.ToLower(args[0])
	if !hex.MatchString(c.Bound) {
		return fmt.Errorf("apply needs a commit of main: give its first %d or more digits", MinBound)
	}
	return nil
}

func readDigest(c *Command, args []string) error {
	if len(args) != 1 {
		return errors.New("write /berth ack-delete DIGEST")
	}
	c.Bound = strings.ToLower(args[0])
	if !hex.MatchString(c.Bound) {
		return errors.New("the argument of ack-delete is no digest: copy the digest that the finding names")
	}
	return nil
}

func readExplain(c *Command, args []string) error {
	if len(args) == 2 {
		c.Field, args = args[1], args[:1]
	}
	if len(args) != 1 {
		return errors.New("write /berth explain TENANT.PROJECT/INSTANCE, or with a FIELD after it")
	}
	var ok bool
	if c.Instance, ok = instance(args[0]); !ok {
		return errors.New("the argument of explain is no instance: write TENANT.PROJECT/INSTANCE")
	}
	if c.Field != "" && !field.MatchString(c.Field) {
		return errors.New("the second argument of explain is no field, such as regions, roles or config.partitions")
	}
	return nil
}

// Names says whether the Bound of a command identifies full.
func (c Command) Names(full string) bool {
	return len(c.Bound) >= MinBound && strings.HasPrefix(strings.ToLower(full), c.Bound)
}

// instance reads TENANT.PROJECT/INSTANCE.
func instance(s string) (schema.Key, bool) {
	place, inst, ok := strings.Cut(s, "/")
	tenant, project, dotted := strings.Cut(place, ".")
	for _, n := range []string{tenant, project, inst} {
		ok = ok && schema.ValidName(n)
	}
	return schema.InstanceKey(tenant, project, inst), ok && dotted
}
