package accounting

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Setting is the name of a setting, as sacctmgr's format= and set have it.
type Setting string

// Settings are those that differ from Slurm's default, in the form that Queries reads.
type Settings map[Setting]string

// form is how sacctmgr shows and takes a value.
type form int

const (
	number  form = iota
	word         // unset by -1
	factor       // shown with six decimals
	seconds      // shown as [D-]HH:MM:SS
	minutes      // shown as [D-]HH:MM:SS
	list         // names in any order
	flags        // names in any order, unset by -1
	tres         // amounts of trackable resources, as cpu=4,gres/gpu=2; each is unset by -1
)

// rule is a row of the tables of settings.
type rule struct {
	name    Setting
	form    form
	initial string // what Slurm gives a new entity; empty: no value
}

// associationRules are the settings of accounts and of users' associations
// (sacctmgr(1), specifications for associations). They are the same on all releases.
var associationRules = []rule{
	{"fairshare", word, "1"}, {"qos", list, ""}, {"defaultqos", word, ""}, {"priority", number, ""}, {"minpriothresh", number, ""},
	{"grpjobs", number, ""}, {"grpjobsaccrue", number, ""}, {"grpsubmitjobs", number, ""},
	{"grptres", tres, ""}, {"grptresmins", tres, ""}, {"grptresrunmins", tres, ""}, {"grpwall", minutes, ""},
	{"maxjobs", number, ""}, {"maxjobsaccrue", number, ""}, {"maxsubmitjobs", number, ""},
	{"maxtresperjob", tres, ""}, {"maxtrespernode", tres, ""}, {"maxtresminsperjob", tres, ""}, {"maxwalldurationperjob", minutes, ""},
}

// qosRules are the settings of a QoS (sacctmgr(1), specifications for QOS). They are
// the same on all releases. MaxTRESRunMinsPerAccount is not among them: 22.05 does not
// show it.
var qosRules = []rule{
	{"priority", number, "0"}, {"gracetime", seconds, "0"}, {"preempt", list, ""}, {"preemptmode", word, "cluster"},
	{"preemptexempttime", minutes, ""},
	{"flags", flags, ""}, {"usagethres", factor, ""}, {"usagefactor", factor, "1"}, {"limitfactor", factor, ""},
	{"minpriothresh", number, ""},
	{"grpjobs", number, ""}, {"grpjobsaccrue", number, ""}, {"grpsubmitjobs", number, ""},
	{"grptres", tres, ""}, {"grptresmins", tres, ""}, {"grptresrunmins", tres, ""}, {"grpwall", minutes, ""},
	{"maxtresperjob", tres, ""}, {"maxtrespernode", tres, ""}, {"maxtresminsperjob", tres, ""}, {"maxwall", minutes, ""},
	{"mintresperjob", tres, ""},
	{"maxtresperuser", tres, ""}, {"maxtresrunminspu", tres, ""}, {"maxjobsperuser", number, ""}, {"maxjobsaccrueperuser", number, ""},
	{"maxsubmitjobsperuser", number, ""},
	{"maxtresperaccount", tres, ""}, {"maxjobsperaccount", number, ""}, {"maxjobsaccrueperaccount", number, ""},
	{"maxsubmitjobsperaccount", number, ""},
}

// columns returns the names of settings for format=.
func columns(rules []rule) []string {
	var names []string
	for _, r := range rules {
		names = append(names, string(r.name))
	}
	return names
}

// settings reads the values of the columns of rules.
func settings(rules []rule, row []string) (Settings, error) {
	s := Settings{}
	for i, r := range rules {
		value, err := r.read(row[i])
		if err != nil {
			return nil, fmt.Errorf("%s: %w", r.name, err)
		}
		if value != r.initial {
			s[r.name] = value
		}
	}
	return s, nil
}

// read returns a shown value in the form of Settings.
func (r rule) read(shown string) (string, error) {
	if shown == "" {
		return "", nil
	}
	switch r.form {
	case number:
		_, err := strconv.ParseUint(shown, 10, 64)
		return shown, err
	case factor:
		f, err := strconv.ParseFloat(shown, 64)
		return strconv.FormatFloat(f, 'f', -1, 64), err
	case seconds, minutes:
		n, err := readSeconds(shown)
		if r.form == minutes {
			n /= 60
		}
		return strconv.Itoa(n), err
	case list, flags, tres:
		return Join(strings.Split(shown, ",")...), nil
	}
	return shown, nil
}

// Join returns names or amounts as the value of a setting.
func Join(words ...string) string {
	words = slices.Clone(words)
	slices.Sort(words)
	return strings.Join(slices.Compact(words), ",")
}

// readSeconds reads [D-]HH:MM:SS.
func readSeconds(shown string) (int, error) {
	days, clock, hasDays := strings.Cut(shown, "-")
	if !hasDays {
		days, clock = "0", shown
	}
	total := 0
	for i, word := range append([]string{days}, strings.Split(clock, ":")...) {
		n, err := strconv.Atoi(word)
		if err != nil || n < 0 || i > 3 {
			return 0, fmt.Errorf("%q is not a time", shown)
		}
		total += n * []int{86400, 3600, 60, 1}[i]
	}
	if strings.Count(clock, ":") != 2 {
		return 0, fmt.Errorf("%q is not a time", shown)
	}
	return total, nil
}

// Assignment changes a setting.
type Assignment struct {
	Setting  Setting
	From, To string // empty: none
	form     form
}

// String says what differs.
func (a Assignment) String() string {
	value := func(s string) string {
		if s == "" {
			return "unset"
		}
		return s
	}
	return fmt.Sprintf("%s is %s, want %s", a.Setting, value(a.From), value(a.To))
}

// arg returns the words after sacctmgr's set.
func (a Assignment) arg() string {
	to := a.To
	switch {
	case a.form == tres:
		var words []string
		for _, amount := range strings.Split(a.From, ",") {
			name, _, _ := strings.Cut(amount, "=")
			if name != "" && !strings.Contains(","+a.To, ","+name+"=") {
				words = append(words, name+"=-1")
			}
		}
		to = Join(append(words, strings.FieldsFunc(a.To, func(r rune) bool { return r == ',' })...)...)
	case to == "" && a.form != list:
		to = "-1"
	}
	return string(a.Setting) + "=" + to
}

// compare returns the assignments that turn the settings have into want, in the order of
// rules.
func compare(rules []rule, have, want Settings) []Assignment {
	var out []Assignment
	for _, r := range rules {
		from, to := r.value(have), r.value(want)
		if from != to {
			out = append(out, Assignment{Setting: r.name, From: from, To: to, form: r.form})
		}
	}
	return out
}

func (r rule) value(s Settings) string {
	if v, ok := s[r.name]; ok {
		return v
	}
	return r.initial
}
