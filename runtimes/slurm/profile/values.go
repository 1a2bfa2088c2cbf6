package profile

import (
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Values are the allowed values of a parameter: whole numbers, words, a list of words with
// commas, or text of a form. The zero Values allow nothing.
type Values struct {
	Low, High int      // bounds of a number
	Words     []string // in a list: each a regular expression
	List      bool
	Form      string // regular expression of the whole text
}

func between(low, high int) Values { return Values{Low: low, High: high} }

func words(words ...string) Values { return Values{Words: words} }

func listOf(words ...string) Values {
	word := "(" + strings.Join(words, "|") + ")"
	return Values{Words: words, List: true, Form: word + "(," + word + ")*"}
}

func form(expr string) Values { return Values{Form: expr} }

// IsNumber reports whether the values are whole numbers.
func (v Values) IsNumber() bool { return v.High > 0 }

// Allow reports whether text is an allowed value.
func (v Values) Allow(text string) bool {
	switch {
	case v.IsNumber():
		n, err := strconv.Atoi(text)
		return err == nil && n >= v.Low && n <= v.High && strconv.Itoa(n) == text
	case v.Form != "":
		return regexp.MustCompile(`^(?:` + v.Form + `)$`).MatchString(text)
	}
	return slices.Contains(v.Words, text)
}

// allows reports whether a file may have this value.
func (p Parameter) allows(value string) bool {
	if p.Value != "" {
		return value == p.Value
	}
	return p.Allowed.Allow(value)
}

// String describes the values.
func (v Values) String() string {
	switch {
	case v.IsNumber():
		return strconv.Itoa(v.Low) + " to " + strconv.Itoa(v.High)
	case v.List:
		return "a list with commas of " + strings.Join(v.Words, ", ")
	case v.Form != "":
		return "text that matches " + v.Form
	}
	return strings.Join(v.Words, ", ")
}
