package accounting

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// LoadFile returns the file with which sacctmgr load makes the accounts and users of the
// tree in one call. Their settings follow as changes: a file cannot make the QoS that
// they name.
func (t Tree) LoadFile() []byte {
	var b strings.Builder
	fmt.Fprintf(&b, "Cluster - '%s':Fairshare=1:QOS='%s'\n", t.Cluster, Normal)
	for _, account := range t.accountsByDepth() {
		var lines []string
		for _, name := range slices.Sorted(maps.Keys(t.Users)) {
			u := t.Users[name]
			if u.DefaultAccount != account {
				continue
			}
			level := ""
			if u.AdminLevel != None {
				level = ":AdminLevel='" + u.AdminLevel + "'"
			}
			lines = append(lines, fmt.Sprintf("User - '%s':DefaultAccount='%s'%s:Fairshare=1", name, account, level))
		}
		for _, child := range slices.Sorted(maps.Keys(t.Accounts)) {
			if t.Accounts[child].Parent == account {
				lines = append(lines, fmt.Sprintf("Account - '%s':Description='%s':Organization='berth':Fairshare=1", child, child))
			}
		}
		if len(lines) > 0 || account != Root {
			b.WriteString("Parent - '" + account + "'\n" + strings.Join(append(lines, ""), "\n"))
		}
	}
	return []byte(b.String())
}
