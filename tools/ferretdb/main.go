// A FerretDB for the store's contract suite: MongoDB's wire protocol on SQLite, on a port of its choice.
//
// The released command cannot be built by `go install` (a generated file is missing from the module), so its
// library is used. Prints its URL as the first line and ends when standard input closes.
package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"

	"github.com/FerretDB/FerretDB/ferretdb"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: ferretdb DIRECTORY")
		os.Exit(2)
	}
	server, err := ferretdb.New(&ferretdb.Config{
		Listener:  ferretdb.ListenerConfig{TCP: "127.0.0.1:0"},
		Logger:    slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError})),
		Handler:   "sqlite",
		SQLiteURL: "file:" + os.Args[1] + "/",
	})
	if err != nil {
		fmt.Fprintln(os.Stderr, "ferretdb:", err)
		os.Exit(1)
	}
	ctx, stop := context.WithCancel(context.Background())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		stop()
	}()
	go fmt.Println(server.MongoDBURI())
	if err := server.Run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "ferretdb:", err)
		os.Exit(1)
	}
}
