package estate_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"berth/schema/estate"
)

const latticeRoles = lattice + "roles.yaml"

// members returns a RoleBinding of "login unix-user uid" each.
func members(of ...string) string {
	var b strings.Builder
	b.WriteString("apiVersion: berth/v1\nkind: RoleBinding\nmetadata: {name: roles}\nspec:\n  members:\n")
	for _, m := range of {
		f := strings.Fields(m)
		fmt.Fprintf(&b, "    - {login: %s, role: project_member, unix_user: {name: %s, uid: %s}}\n", f[0], f[1], f[2])
	}
	return b.String()
}

// System accounts of a host cannot be declared, in particular those with sudo in
// images of Debian and Ubuntu. Names of people can.
func TestSystemAccountsCannotBeDeclared(t *testing.T) {
	reserved := strings.Fields(`root daemon bin sys sync games man lp mail news uucp proxy www-data backup list irc nobody nogroup
		sudo adm wheel docker lxd disk shadow staff users operator kvm
		systemd-network systemd-resolve systemd-timesync messagebus sshd syslog polkitd uuidd tss tcpdump landscape pollinate dnsmasq usbmux
		munge slurm slurmrestd mysql mariadb postgres redis etcd nvidia-persistenced prometheus berth berth-host
		admin administrator debian ubuntu ec2-user cloud-user centos rocky almalinux fedora opc azureuser core pi vagrant ansible`)
	l := newLoader(t)
	for _, name := range reserved {
		r, err := l.Load(context.Background(), estate.Files(with(t, map[string]string{latticeRoles: members("a " + name + " 20001")})))
		require.NoError(t, err)
		require.Contains(t, render(r), "want the name of a person, not of a system account [schema.pattern]", name)
	}
	for _, name := range strings.Fields("anna bernd debra adam coretta mansur syd mailin sudoku lpetrov b-erth picard administrata " +
		"rootkit") {
		r, err := l.Load(context.Background(), estate.Files(with(t, map[string]string{latticeRoles: members("a " + name + " 20001")})))
		require.NoError(t, err)
		require.Empty(t, render(r), name)
	}
}
