-- uses: lives

end_life(EPOCH)
return {'OK'}
