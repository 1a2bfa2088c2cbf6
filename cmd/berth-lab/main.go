// Command berth-lab runs lab hosts on this machine and the end-to-end demo. It is
// the only program that has test servers in it.
package main

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"berth/cmd/internal/cli"
)

func main() { os.Exit(cli.Main(newRoot())) }

func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:   "berth-lab",
		Short: "Run lab hosts on this machine, and the demo",
		Long: `Run one lab host on this machine for each Node of an estate, or run the
end-to-end demo. A lab host has its own address, name, processes, accounts, files
and GPU devices, an sshd and berth-host. Changes on a host are kept in memory and
end with it. up, image, down and status need root.`,
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.AddCommand(newUpCmd(), newImageCmd(), newDownCmd(), newStatusCmd(), newDemoCmd())
	cli.WrapErrors(root)
	return root
}

// program returns the path of another program of Berth: as given, or in the
// directory of this program.
func program(given, name string) (string, error) {
	if given != "" {
		return given, nil
	}
	self, err := os.Executable()
	if err != nil {
		return "", err
	}
	path := filepath.Join(filepath.Dir(self), name)
	if _, err := os.Stat(path); err != nil {
		return "", fmt.Errorf("program %s not found beside berth-lab: %w; run make build, or name it with a flag", name, err)
	}
	return path, nil
}
