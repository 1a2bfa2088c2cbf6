// Package command reads the commands that users write in comments on a pull
// request: one line that begins with /berth.
//
// The package is pure. It must not know a forge, the user, permissions, or what a
// command does: it checks the form of a line against a table of verbs.
package command

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"berth/schema"
)

// Help is the verb of a line that names no other.
const Help = "help"

const (
	prefix = "/berth"
	// maxLine is the longest line that is read, in bytes.
	maxLine = 512
	// breakGlass comes before the reason for break-glass access, as in a trailer.
	breakGlass = "Break-Glass:"
)

// ErrOther: the line does not begin with /berth.
var ErrOther = errors.New("not a command to Berth")

// Verb is one command of the table: how it is written, and its help.
type Verb struct {
	Name       string
	Args       []Argument
	BreakGlass bool   // "Break-Glass: REASON" may follow the arguments
	Help       string // its effect
}

// Argument is a word after the name of a command.
type Argument struct {
	Name     string // as the help shows it, such as COMMIT
	Optional bool
	// Parse checks a word and returns it in its normal form. The error is one
	// sentence that contains nothing of the word.
	Parse func(word string) (string, error)
}

// Command is a line that follows the table.
type Command struct {
	Verb   string
	Args   []string // one for each argument of the verb; "": left out
	Reason string   // for break-glass access; "": not asked for
}

// Usage is how a command is written.
func (v Verb) Usage() string {
	words := []string{prefix, v.Name}
	for _, a := range v.Args {
		if a.Optional {
			words = append(words, "["+a.Name+"]")
		} else {
			words = append(words, a.Name)
		}
	}
	if v.BreakGlass {
		words = append(words, "["+breakGlass+" REASON]")
	}
	return strings.Join(words, " ")
}

// Parse reads a line such as "/berth apply 1f0c9aa" by a table of verbs. Space
// around words is ignored, and so are backquotes around a word, which copying from
// a comment adds. The error is one sentence for people that contains nothing of the
// line; it is ErrOther for a line without /berth.
func Parse(line string, verbs []Verb) (Command, error) {
	tooLong := len(line) > maxLine
	if tooLong {
		line = line[:maxLine]
	}
	words := strings.Fields(line)
	if len(words) == 0 || words[0] != prefix {
		return Command{}, ErrOther
	}
	if tooLong {
		return Command{}, fmt.Errorf("the line is longer than %d bytes", maxLine)
	}
	words = words[1:]
	if len(words) == 0 {
		return Command{Verb: Help}, nil
	}
	for i, w := range words {
		if len(w) > 2 && w[0] == '`' && w[len(w)-1] == '`' {
			words[i] = w[1 : len(w)-1]
		}
	}
	i := slices.IndexFunc(verbs, func(v Verb) bool { return v.Name == strings.ToLower(words[0]) })
	if i < 0 {
		return Command{}, errors.New("unknown command; /berth help lists the commands")
	}
	return verbs[i].parse(words[1:])
}

func (v Verb) parse(words []string) (Command, error) {
	c := Command{Verb: v.Name, Args: make([]string, len(v.Args))}
	if n := len(v.Args); v.BreakGlass && len(words) > n+1 && strings.EqualFold(words[n], breakGlass) {
		c.Reason, words = strings.Join(words[n+1:], " "), words[:n]
	}
	needed := slices.DeleteFunc(slices.Clone(v.Args), func(a Argument) bool { return a.Optional })
	if len(words) < len(needed) || len(words) > len(v.Args) {
		return c, errors.New("usage: " + v.Usage())
	}
	for i, word := range words {
		var err error
		if c.Args[i], err = v.Args[i].Parse(word); err != nil {
			return c, err
		}
	}
	return c, nil
}

// Commit parses the beginning of a commit's id.
func Commit(word string) (string, error) {
	return hexadecimal(word, "COMMIT must be the first 7 or more digits of a commit of main")
}

// Digest parses the digest that a finding names.
func Digest(word string) (string, error) {
	return hexadecimal(word, "DIGEST must be the digest that the finding names; copy it from there")
}

func hexadecimal(word, wrong string) (string, error) {
	word = strings.ToLower(word)
	if len(word) < 7 || len(word) > 64 || strings.Trim(word, "0123456789abcdef") != "" {
		return "", errors.New(wrong)
	}
	return word, nil
}

// Instance parses TENANT.PROJECT/NAME. InstanceKey returns the key.
func Instance(word string) (string, error) {
	if _, ok := InstanceKey(word); !ok {
		return "", errors.New("INSTANCE must be written as TENANT.PROJECT/NAME")
	}
	return word, nil
}

// InstanceKey is the key of an instance written as TENANT.PROJECT/NAME.
func InstanceKey(word string) (schema.Key, bool) {
	place, inst, ok := strings.Cut(word, "/")
	tenant, project, dotted := strings.Cut(place, ".")
	for _, n := range []string{tenant, project, inst} {
		ok = ok && schema.ValidName(n)
	}
	return schema.InstanceKey(tenant, project, inst), ok && dotted
}

// Field parses the path of a field.
func Field(word string) (string, error) {
	const allowed = "abcdefghijklmnopqrstuvwxyz0123456789_.[]-"
	if word == "" || len(word) > 100 || strings.Trim(strings.ToLower(word), allowed) != "" {
		return "", errors.New("FIELD must be a path such as regions, roles or config.partitions")
	}
	return word, nil
}
