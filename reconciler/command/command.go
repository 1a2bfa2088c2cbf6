// Package command reads what people tell Berth to do in a comment on a pull
// request: one line that begins with /berth.
//
// The package is pure. It must not know a forge, who said it, or whether they
// may: it only says what is asked for, or what is wrong with how it is asked.
package command

import (
	"errors"
	"fmt"
	"regexp"
	"strings"

	"berth/schema"
)

// Verb is what is asked for.
type Verb string

// The verbs.
const (
	Plan      Verb = "plan"       // show again what a merge would do
	Apply     Verb = "apply"      // bring into force what is held of a commit of main
	AckDelete Verb = "ack-delete" // acknowledge a large deletion
	Retry     Verb = "retry"      // what gave up shall try again
	Explain   Verb = "explain"    // what an instance comes to, and through which layers
	Help      Verb = "help"
)

// Command is a line that was understood.
type Command struct {
	Verb Verb
	// Bound is what it is said of: of Apply a commit, its first MinBound or more
	// characters; of AckDelete the whole digest. Hexadecimal, in lower case.
	Bound    string
	Instance schema.Key // of Explain
	Field    string     // of Explain; "": all of it
	Reason   string     // of Apply: why break-glass access is asked for; "": it is not
}

// ErrOther: the line is not to Berth, though it may look like it.
var ErrOther = errors.New("not a command to Berth")

const (
	// MinBound is the fewest characters a commit is named by.
	MinBound = 7
	// maxLine is the longest line that is looked at, in bytes.
	maxLine = 512
	// breakGlass comes before a reason, as in a commit's trailer.
	breakGlass = "Break-Glass:"
)

var (
	hex   = regexp.MustCompile(`^[0-9a-f]{7,64}$`)
	field = regexp.MustCompile(`^[A-Za-z0-9_.\[\]-]{1,100}$`)
)

// Parse reads a line, such as "/berth apply 1f0c9aa". Space around and between
// words means nothing, and neither do backquotes around one, which come along
// where something is copied from a comment. The error is one sentence for
// people, with nothing of the line in it; it is ErrOther for a line that only
// begins like a command.
func Parse(line string) (Command, error) {
	if len(line) > maxLine {
		line = line[:maxLine+1] // of all of it, only that it is too long is told
	}
	words := strings.Fields(line)
	if len(words) == 0 || words[0] != "/berth" {
		return Command{}, ErrOther
	}
	if len(line) > maxLine {
		return Command{}, fmt.Errorf("the line is longer than %d bytes", maxLine)
	}
	args := words[1:]
	for i, w := range args {
		if len(w) > 2 && w[0] == '`' && w[len(w)-1] == '`' {
			args[i] = w[1 : len(w)-1]
		}
	}
	if len(args) == 0 {
		return Command{Verb: Help}, nil
	}
	c := Command{Verb: Verb(strings.ToLower(args[0]))}
	args = args[1:]
	want := func(n int, form string) error {
		if len(args) != n {
			return fmt.Errorf("it is written /berth %s", form)
		}
		return nil
	}
	switch c.Verb {
	case Plan, Retry, Help:
		return c, want(0, string(c.Verb))
	case Apply:
		if len(args) > 2 && strings.EqualFold(args[1], breakGlass) {
			c.Reason, args = strings.Join(args[2:], " "), args[:1]
		}
		if err := want(1, "apply COMMIT, or with Break-Glass: REASON after it"); err != nil {
			return c, err
		}
		c.Bound = strings.ToLower(args[0])
		if !hex.MatchString(c.Bound) {
			return c, fmt.Errorf("apply needs a commit of main: give its first %d or more digits", MinBound)
		}
	case AckDelete:
		if err := want(1, "ack-delete DIGEST"); err != nil {
			return c, err
		}
		c.Bound = strings.ToLower(args[0])
		if !hex.MatchString(c.Bound) {
			return c, errors.New("what follows ack-delete is no digest: copy the one that the finding names")
		}
	case Explain:
		if len(args) == 2 {
			c.Field, args = args[1], args[:1]
		}
		if err := want(1, "explain TENANT.PROJECT/INSTANCE, or with a FIELD after it"); err != nil {
			return c, err
		}
		var ok bool
		if c.Instance, ok = instance(args[0]); !ok {
			return c, errors.New("what follows explain is no instance: it is written TENANT.PROJECT/INSTANCE")
		}
		if c.Field != "" && !field.MatchString(c.Field) {
			return c, errors.New("that is no field: one is written as regions, roles or config.partitions")
		}
	default:
		return Command{}, errors.New("unknown command; /berth help lists the commands")
	}
	return c, nil
}

// Names says whether a command's Bound is of full.
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
