// Package accountingtest has a slurmdbd in memory for tests: it takes the arguments of
// sacctmgr, refuses what slurmdbd refuses or breaks at, and prints its lists as
// sacctmgr does.
//
// It must not know the runtime.
package accountingtest

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"berth/runtimes/slurm/accounting"
	"berth/runtimes/slurm/cli"
)

// Database is the accounting of one cluster. The QoS and users of a tree belong to all
// clusters of a slurmdbd.
type Database struct {
	accounting.Tree
	// Busy are users, accounts and QoS with jobs: they cannot be removed.
	Busy []string
}

// call is a call of sacctmgr in parts.
type call struct {
	verb, entity   string
	names          []string
	where          map[string]string
	assign         [][2]string
	cluster        string
	account, place string
}

func parse(args []string) (call, error) {
	c := call{where: map[string]string{}}
	if len(args) < 4 || args[0] != "-i" {
		return c, fmt.Errorf("unexpected arguments %q", args)
	}
	c.verb, c.entity = args[1], args[2]
	set := false
	for i, a := range args[3:] {
		key, value, isPair := strings.Cut(a, "=")
		switch {
		case a == "where":
		case a == "set":
			set = true
		case set || c.entity == "qos" && isPair && key != "name", c.verb+c.entity == "addaccount" && isPair &&
			!slices.Contains([]string{"cluster", "parent", "description", "organization"}, key):
			c.assign = append(c.assign, [2]string{key, value})
		case !isPair && i == 0:
			c.names = strings.Split(a, ",")
		case isPair:
			c.where[key] = value
		default:
			return c, fmt.Errorf("unexpected word %q", a)
		}
	}
	if n, ok := c.where["name"]; ok {
		c.names = strings.Split(n, ",")
	}
	c.cluster, c.account, c.place = c.where["cluster"], c.where["account"], c.where["partition"]
	return c, nil
}

// Run makes the changes of a call of sacctmgr, or returns why it refuses them.
func (d *Database) Run(args []string) error {
	c, err := parse(args)
	if err != nil {
		return err
	}
	if c.cluster != "" && c.cluster != d.Cluster {
		return fmt.Errorf("cluster %s is not of this database", c.cluster)
	}
	for _, name := range c.names {
		if err := d.one(c, name); err != nil {
			return fmt.Errorf("%s: %s: %w", strings.Join(args, " "), name, err)
		}
	}
	return nil
}

func (d *Database) one(c call, name string) error {
	switch c.verb + " " + c.entity {
	case "add qos":
		if _, ok := d.QoS[name]; ok {
			return fmt.Errorf("exists")
		}
		d.QoS[name] = accounting.Settings{}
		return d.setQoS(name, c.assign)
	case "modify qos":
		if d.QoS[name] == nil {
			return fmt.Errorf("does not exist")
		}
		return d.setQoS(name, c.assign)
	case "delete qos":
		return d.deleteQoS(name)
	case "add account":
		if _, ok := d.Accounts[name]; ok || d.Accounts[c.where["parent"]].Settings == nil {
			return fmt.Errorf("exists, or its parent %q does not", c.where["parent"])
		}
		d.Accounts[name] = accounting.Account{Parent: c.where["parent"], Settings: accounting.Settings{}}
		return d.setAccount(name, c.assign)
	case "modify account":
		return d.setAccount(name, c.assign)
	case "delete account":
		return d.deleteAccount(name)
	case "add user":
		return d.addUser(name, c)
	case "modify user":
		return d.setUser(name, c)
	case "delete user":
		return d.deleteUser(name, c)
	case "delete coordinator":
		u := d.Users[name]
		u.Coordinates = slices.DeleteFunc(slices.Clone(u.Coordinates), func(a string) bool { return a == c.account })
		if len(u.Coordinates) == 0 {
			u.Coordinates = nil
		}
		d.Users[name] = u
		return nil
	}
	return fmt.Errorf("unknown command")
}

// preempts reports whether a QoS preempts another one or is that one, itself or through others.
func (d *Database) preempts(name, other string, seen map[string]bool) bool {
	if name == other {
		return true
	}
	seen[name] = true
	return slices.ContainsFunc(strings.Split(d.QoS[name]["preempt"], ","), func(n string) bool {
		return n != "" && !seen[n] && d.preempts(n, other, seen)
	})
}

func (d *Database) setQoS(name string, assign [][2]string) error {
	s := d.QoS[name]
	for _, a := range assign {
		if a[0] == "preempt" && a[1] != "" {
			for n := range strings.SplitSeq(a[1], ",") {
				if d.QoS[n] == nil {
					return fmt.Errorf("preempts %s, which does not exist", n)
				}
			}
			if slices.ContainsFunc(strings.Split(a[1], ","), func(n string) bool { return d.preempts(n, name, map[string]bool{}) }) {
				return fmt.Errorf("QOS Preemption loop detected")
			}
		}
		set(s, a[0], a[1], map[string]string{"priority": "0", "gracetime": "0", "preemptmode": "cluster", "usagefactor": "1"})
	}
	return nil
}

// set sets a value, or takes it away if it is that of a new entity.
func set(s accounting.Settings, key, value string, initial map[string]string) {
	name := accounting.Setting(key)
	if strings.Contains(key, "tres") {
		amounts := map[string]string{}
		for _, list := range []string{s[name], value} {
			for a := range strings.FieldsFuncSeq(list, func(r rune) bool { return r == ',' }) {
				k, v, _ := strings.Cut(a, "=")
				amounts[k] = v
			}
		}
		var words []string
		for k, v := range amounts {
			if v != "-1" {
				words = append(words, k+"="+v)
			}
		}
		value = accounting.Join(words...)
	}
	if s[name] = value; value == "" || value == "-1" || value == initial[key] {
		delete(s, name)
	}
}

func (d *Database) setAssociation(s accounting.Settings, assign [][2]string) error {
	for _, a := range assign {
		if (a[0] == "qos" || a[0] == "defaultqos") && a[1] != "" && a[1] != "-1" {
			for n := range strings.SplitSeq(a[1], ",") {
				if d.QoS[n] == nil {
					return fmt.Errorf("QoS %s does not exist", n)
				}
			}
		}
		set(s, a[0], a[1], map[string]string{"fairshare": "1"})
	}
	return nil
}

func (d *Database) setAccount(name string, assign [][2]string) error {
	a, ok := d.Accounts[name]
	if !ok {
		return fmt.Errorf("does not exist")
	}
	for _, one := range assign {
		if one[0] != "parent" {
			if err := d.setAssociation(a.Settings, [][2]string{one}); err != nil {
				return err
			}
			continue
		}
		for up := one[1]; up != accounting.Root; up = d.Accounts[up].Parent {
			if _, ok := d.Accounts[up]; !ok || up == name {
				return fmt.Errorf("parent %s does not exist or is below it", one[1])
			}
		}
		a.Parent = one[1]
	}
	d.Accounts[name] = a
	return nil
}

func (d *Database) addUser(name string, c call) error {
	if d.Accounts[c.account].Settings == nil {
		return fmt.Errorf("account %q does not exist", c.account)
	}
	p := accounting.Place{Account: c.account, Partition: c.place}
	u, ok := d.Users[name]
	if !ok {
		u = accounting.User{DefaultAccount: c.account, AdminLevel: accounting.None,
			Associations: map[accounting.Place]accounting.Settings{}}
	}
	if _, ok := u.Associations[p]; ok {
		return fmt.Errorf("has access to account %s", c.account)
	}
	u.Associations[p] = accounting.Settings{}
	d.Users[name] = u
	return nil
}

func (d *Database) setUser(name string, c call) error {
	u, ok := d.Users[name]
	if !ok {
		return fmt.Errorf("does not exist")
	}
	for _, a := range c.assign {
		switch a[0] {
		case "adminlevel":
			u.AdminLevel = a[1]
		case "defaultaccount":
			u.DefaultAccount = a[1]
		default:
			found := false
			for p, s := range u.Associations {
				if (c.account == "" || p.Account == c.account) && (c.place == "" || p.Partition == c.place) {
					found = true
					if err := d.setAssociation(s, [][2]string{a}); err != nil {
						return err
					}
				}
			}
			if !found {
				return fmt.Errorf("has no access to account %s", c.account)
			}
		}
	}
	d.Users[name] = u
	return nil
}

// deleteUser removes associations, and with the last one the user. That with the default
// account is removed only with all others.
func (d *Database) deleteUser(name string, c call) error {
	u, ok := d.Users[name]
	if !ok || name == accounting.Root {
		return fmt.Errorf("does not exist, or is root")
	}
	if slices.Contains(d.Busy, name) {
		return fmt.Errorf("Job(s) active, cancel job(s) before remove")
	}
	left := 0
	for p := range u.Associations {
		if (c.account == "" || p.Account == c.account) && (c.place == "" || p.Partition == c.place) {
			delete(u.Associations, p)
		} else if p.Account == u.DefaultAccount {
			left++
		}
	}
	switch {
	case len(u.Associations) == 0:
		delete(d.Users, name)
	case left == 0: // 24.11: also if only an association with one partition goes
		return fmt.Errorf("sacctmgr: You can not remove the default account of a user")
	}
	return nil
}

func (d *Database) deleteAccount(name string) error {
	if name == accounting.Root || slices.Contains(d.Busy, name) {
		return fmt.Errorf("Job(s) active, cancel job(s) before remove")
	}
	for child, a := range d.Accounts {
		if a.Parent == name {
			return fmt.Errorf("has the child %s, and slurmdbd 24.11 breaks", child)
		}
	}
	for who, u := range d.Users {
		for p := range u.Associations {
			if p.Account == name {
				return fmt.Errorf("user %s has access to it", who)
			}
		}
	}
	delete(d.Accounts, name)
	return nil
}

func (d *Database) deleteQoS(name string) error {
	if name == accounting.Normal || slices.Contains(d.Busy, name) {
		return fmt.Errorf("Job(s) active, cancel job(s) before remove")
	}
	var all []accounting.Settings
	for _, a := range d.Accounts {
		all = append(all, a.Settings)
	}
	for _, u := range d.Users {
		all = append(all, slices.Collect(maps.Values(u.Associations))...)
	}
	for _, s := range all {
		for _, key := range []accounting.Setting{"qos", "defaultqos"} {
			if slices.Contains(strings.Split(s[key], ","), name) {
				return fmt.Errorf("is in use by %v", s)
			}
		}
	}
	delete(d.QoS, name)
	for _, q := range d.QoS { // slurmdbd takes it out of their lists itself
		left := slices.DeleteFunc(strings.Split(q["preempt"], ","), func(n string) bool { return n == name })
		set(q, "preempt", accounting.Join(left...), nil)
	}
	return nil
}

// List prints a list as sacctmgr does.
func (d *Database) List(args []string) string {
	entity := args[slices.Index(args, "list")+1]
	keys := strings.Split(strings.TrimPrefix(args[len(args)-1], "format="), ",")
	var rows [][]string
	row := func(s accounting.Settings, lead ...string) {
		cells := slices.Clone(lead)
		for _, key := range keys[len(lead):] {
			cells = append(cells, show(entity, key, s[accounting.Setting(key)]))
		}
		rows = append(rows, cells)
	}
	switch entity {
	case "cluster":
		rows = append(rows, []string{d.Cluster})
	case "qos":
		for _, name := range slices.Sorted(maps.Keys(d.QoS)) {
			row(d.QoS[name], name)
		}
	case "assoc":
		for _, name := range slices.Sorted(maps.Keys(d.Accounts)) {
			row(d.Accounts[name].Settings, name, d.Accounts[name].Parent, "", "")
		}
		for _, name := range slices.Sorted(maps.Keys(d.Users)) {
			for p, s := range d.Users[name].Associations {
				row(s, p.Account, "", name, p.Partition)
			}
		}
	case "user":
		for _, name := range slices.Sorted(maps.Keys(d.Users)) {
			u := d.Users[name]
			rows = append(rows, []string{name, u.DefaultAccount, u.AdminLevel, strings.Join(u.Coordinates, ",")})
		}
	}
	out := []string{cli.Heading(keys...)}
	for _, r := range rows {
		out = append(out, strings.Join(r, "|"))
	}
	if len(rows) == 0 { // the form that sacctmgr has for one column
		out = append(out, "")
	}
	return strings.Join(out, "\n") + "\n"
}

// show prints a value: times as D-HH:MM:SS, factors with six decimals, and the values of
// a new entity.
func show(entity, key, value string) string {
	if value == "" {
		switch {
		case entity == "qos" && key == "priority":
			return "0"
		case key == "preemptmode":
			return "cluster"
		case key == "usagefactor":
			return "1.000000"
		case key == "gracetime":
			return "00:00:00"
		case key == "fairshare":
			return "1"
		}
		return ""
	}
	n, _ := strconv.Atoi(value)
	switch key {
	case "usagefactor", "usagethres", "limitfactor":
		f, _ := strconv.ParseFloat(value, 64)
		return fmt.Sprintf("%f", f)
	case "grpwall", "maxwall", "maxwalldurationperjob", "preemptexempttime":
		n *= 60
	case "gracetime":
	default:
		return value
	}
	clock := fmt.Sprintf("%02d:%02d:%02d", n/3600%24, n/60%60, n%60)
	if n >= 86400 {
		return fmt.Sprintf("%d-%s", n/86400, clock)
	}
	return clock
}
