"""What optchat knows about the programs that agents run in, one package a host."""
