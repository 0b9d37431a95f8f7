// A FerretDB for the store's contract suite: MongoDB's wire protocol on SQLite, on a port of its choice.
//
// The released command cannot be built by `go install` (a generated file is missing from the module), so its
// library is used. FerretDB 1 reads, compares and writes in separate steps, so two conditional updates of one
// document can both succeed; MongoDB promises that they cannot. A front of ours lets one request pass at a
// time, which restores that promise.
//
// Prints its URL as the first line and ends when standard input closes.
package main

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/url"
	"os"
	"sync"

	"github.com/FerretDB/FerretDB/ferretdb"
)

const maxMessageBytes = 48_000_000

var oneAtATime sync.Mutex

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
		fail(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		stop()
	}()
	go serve(server)
	if err := server.Run(ctx); err != nil {
		fail(err)
	}
}

func serve(server *ferretdb.FerretDB) {
	behind, err := url.Parse(server.MongoDBURI())
	if err != nil {
		fail(err)
	}
	front, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		fail(err)
	}
	fmt.Printf("mongodb://%s/\n", front.Addr())
	for {
		client, err := front.Accept()
		if err != nil {
			fail(err)
		}
		go pass(client, behind.Host)
	}
}

// pass hands the requests of one connection on, each with its answer, until either side leaves.
func pass(client net.Conn, address string) {
	defer client.Close()
	upstream, err := net.Dial("tcp", address)
	if err != nil {
		return
	}
	defer upstream.Close()
	for {
		request, err := message(client)
		if err != nil {
			return
		}
		answer, err := exchange(upstream, request)
		if err != nil {
			return
		}
		if _, err := client.Write(answer); err != nil {
			return
		}
	}
}

func exchange(upstream net.Conn, request []byte) ([]byte, error) {
	oneAtATime.Lock()
	defer oneAtATime.Unlock()
	if _, err := upstream.Write(request); err != nil {
		return nil, err
	}
	return message(upstream)
}

// message reads one message: its length comes first, and counts itself.
func message(from io.Reader) ([]byte, error) {
	var header [4]byte
	if _, err := io.ReadFull(from, header[:]); err != nil {
		return nil, err
	}
	length := binary.LittleEndian.Uint32(header[:])
	if length < 16 || length > maxMessageBytes {
		return nil, fmt.Errorf("a message of %d bytes", length)
	}
	whole := append(make([]byte, 0, length), header[:]...)[:length]
	_, err := io.ReadFull(from, whole[4:])
	return whole, err
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, "ferretdb:", err)
	os.Exit(1)
}
